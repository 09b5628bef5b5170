"""Tests of models of ONNX."""
