// A runtime to start from, in Go: it speaks the protocol of tensor-conformance and knows a few
// statements on int32 and float32.  Add a case to `evaluate` and a name to `statements`: each is
// one more that the suite tests.
//
//	go build -o NAME NAME.go
//	tensor-conformance run --cmd ./NAME
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
)

var statements = []string{"input", "constant", "neg", "add", "sub", "mul", "reshape", "sum",
	"copy", "realize", "drop", "observe"}

// Value has the bits of its elements, row by row.  Both dtypes have four bytes.
type Value struct {
	dtype string
	shape []int
	bits  []uint32
}

type Statement struct {
	Do       string
	To       string
	From     []string
	Names    []string
	Dtype    string
	Shape    []int
	Data     string
	Value    any
	Axes     []int
	Keepdims bool
}

type Message struct {
	Type    string
	Seq     int
	Program struct{ Statements []Statement }
}

type unsupported string

func (what unsupported) Error() string { return string(what) }

func count(shape []int) int {
	total := 1
	for _, size := range shape {
		total *= size
	}
	return total
}

// evaluate gives the value of an expression.
func evaluate(s Statement, from []Value) (Value, error) {
	made := Value{s.Dtype, s.Shape, nil}
	if len(from) > 0 {
		made = Value{from[0].dtype, from[0].shape, make([]uint32, len(from[0].bits))}
	}
	switch s.Do {
	case "input":
		raw, err := hex.DecodeString(s.Data)
		if err != nil || len(raw) != 4*count(s.Shape) {
			return made, fmt.Errorf("input: bytes and shape do not fit")
		}
		for i := 0; i < len(raw); i += 4 {
			made.bits = append(made.bits, binary.LittleEndian.Uint32(raw[i:]))
		}
	case "constant":
		bits, err := constant(s.Dtype, s.Value)
		if err != nil {
			return made, err
		}
		for i := 0; i < count(s.Shape); i++ {
			made.bits = append(made.bits, bits)
		}
	case "copy":
		copy(made.bits, from[0].bits)
	case "neg":
		for i, x := range from[0].bits {
			made.bits[i] = -x // two's complement; of a float only the sign changes
			if made.dtype == "float32" {
				made.bits[i] = x ^ 1<<31
			}
		}
	case "add", "sub", "mul":
		if len(from[0].bits) != len(from[1].bits) {
			return made, fmt.Errorf("%s: shapes %v and %v", s.Do, from[0].shape, from[1].shape)
		}
		for i, x := range from[0].bits {
			made.bits[i] = binary2(s.Do, made.dtype, x, from[1].bits[i])
		}
	case "reshape":
		if count(s.Shape) != len(made.bits) {
			return made, fmt.Errorf("reshape: %v cannot become %v", from[0].shape, s.Shape)
		}
		made.shape = s.Shape
		copy(made.bits, from[0].bits)
	case "sum":
		return sum(s, from[0]), nil
	default:
		return made, unsupported(s.Do)
	}
	return made, nil
}

func constant(dtype string, value any) (uint32, error) {
	number, ok := value.(float64)
	if word, is := value.(string); is { // JSON has no NaN and no infinities
		number, ok = map[string]float64{"nan": math.NaN(), "inf": math.Inf(1),
			"-inf": math.Inf(-1)}[word]
	}
	if !ok {
		return 0, fmt.Errorf("constant: %v is no number", value)
	}
	if dtype == "float32" {
		return math.Float32bits(float32(number)), nil
	}
	return uint32(int64(number)), nil
}

func binary2(do, dtype string, x, y uint32) uint32 {
	if dtype == "float32" {
		a, b := math.Float32frombits(x), math.Float32frombits(y)
		return math.Float32bits(map[string]float32{"add": a + b, "sub": a - b, "mul": a * b}[do])
	}
	return map[string]uint32{"add": x + y, "sub": x - y, "mul": x * y}[do] // wraps around
}

// sum adds along axes: each element goes to the place that its other axes name.
func sum(s Statement, x Value) Value {
	over := map[int]bool{}
	for _, axis := range s.Axes {
		over[axis] = true
	}
	made := Value{dtype: x.dtype}
	for axis, size := range x.shape {
		if !over[axis] {
			made.shape = append(made.shape, size)
		} else if s.Keepdims {
			made.shape = append(made.shape, 1)
		}
	}
	exact, floats := make([]uint32, count(made.shape)), make([]float64, count(made.shape))
	for i, bits := range x.bits {
		place, rest, width := 0, i, 1
		for axis := len(x.shape) - 1; axis >= 0; axis-- {
			if !over[axis] {
				place += rest % x.shape[axis] * width
				width *= x.shape[axis]
			}
			rest /= x.shape[axis]
		}
		exact[place] += bits
		floats[place] += float64(math.Float32frombits(bits))
	}
	made.bits = exact
	if x.dtype == "float32" {
		for i, total := range floats {
			made.bits[i] = math.Float32bits(float32(total))
		}
	}
	return made
}

// run executes a program, each statement where it stands, and answers what it observed.
func run(program []Statement) ([]any, error) {
	variables, seen := map[string]Value{}, []any{}
	for _, s := range program {
		var from []Value
		for _, name := range append(append([]string{}, s.From...), s.Names...) {
			value, known := variables[name]
			if !known {
				return nil, fmt.Errorf("%s: there is no %s", s.Do, name)
			}
			from = append(from, value)
		}
		switch s.Do {
		case "realize": // nothing is lazy here
		case "drop":
			for _, name := range s.Names {
				delete(variables, name)
			}
		case "observe":
			for i, name := range s.Names {
				raw := make([]byte, 4*len(from[i].bits))
				for j, bits := range from[i].bits {
					binary.LittleEndian.PutUint32(raw[4*j:], bits)
				}
				seen = append(seen, map[string]any{"name": name, "dtype": from[i].dtype,
					"shape": append([]int{}, from[i].shape...), "data": hex.EncodeToString(raw)})
			}
		default:
			value, err := evaluate(s, from)
			if err != nil {
				return nil, err
			}
			variables[s.To] = value
		}
	}
	return seen, nil
}

func answer(message Message) map[string]any {
	if message.Type == "start" {
		return map[string]any{"type": "started", "protocol": "tensor-conformance/1",
			"info": map[string]any{"name": "NAME", "version": "1", "language": "Go",
				"observes": []string{"values"}, "statements": statements,
				"dtypes": []string{"int32", "float32"}}}
	}
	seen := []any{}
	if message.Type == "run" {
		var err error
		seen, err = run(message.Program.Statements)
		if what, is := err.(unsupported); is {
			return map[string]any{"type": "unsupported", "seq": message.Seq, "what": string(what)}
		} else if err != nil {
			return map[string]any{"type": "error", "seq": message.Seq, "message": err.Error()}
		}
	} // a `reset` forgets what is kept between programs: nothing
	return map[string]any{"type": "ok", "seq": message.Seq,
		"observation": map[string]any{"values": seen}}
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		var message Message
		if err != nil || json.Unmarshal(line, &message) != nil || message.Type == "stop" {
			return
		}
		out.Encode(answer(message))
	}
}
