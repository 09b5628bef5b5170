"""Optimisers: they turn gradients into new values of the parameters.

`step()` computes the new values; `schedule_step()` only writes them down, and returns the tensors
to realize, so that a step can share a schedule with the loss. Groups of parameters, their options
and what `state_dict` returns have PyTorch's names, so that its checkpoints load.
"""
from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from impl.dtypes import DType, dtypes, sum_accumulator
from impl.errors import ArgumentError, DTypeError, SettingError, ShapeError, warn
from impl.gradient.hooks import RemovableHook
from impl.host import np
from impl.nn.names import missing, publish
from impl.nn.state import laid_as
from impl.tensor import Tensor
from impl.tensor.names import made

__all__ = ["Adagrad", "Adam", "AdamW", "LAMB", "LARS", "Lion", "Muon", "Optimizer", "RMSprop",
           "SGD", "clip_grad_norm_", "clip_grad_value_"]

Parameters = Iterable[Tensor] | Iterable[Mapping[str, Any]]
#: What one parameter has besides its value: name -> tensor.
State = dict[str, Tensor]
#: The same with the values that are loaded into them.
Loaded = dict[str, tuple[Tensor, Any]]
#: Steps before an update is captured, if nobody asks for it: an optimiser of few steps is not worth
#: what that takes.
_BEFORE_CAPTURE = 8
#: Options of PyTorch that say how it computes, and not what.
_HOW = frozenset(("foreach", "fused", "capturable", "differentiable"))
#: Options that are not in what older versions saved, and that mean nothing where they are 0.
_LATE = frozenset(("maximize", "dampening", "decoupled_weight_decay", "lr_decay"))
#: Options that are numbers of 0 or more.
_NOT_NEGATIVE = frozenset(("lr", "momentum", "weight_decay", "eps", "alpha", "lr_decay"))
#: What schedules keep in the groups.
_OF_SCHEDULES = ("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")


#: Optimisers with a module of their own, imported when they are asked for.
_ELSEWHERE = {**dict.fromkeys((
    "ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "Rprop"), "adaptive"),
              "LBFGS": "lbfgs"}
publish("optim", [*__all__, *_ELSEWHERE])


def __getattr__(name: str) -> Any:
    if name in ("lr_scheduler", "swa_utils"):  # where PyTorch has them
        return importlib.import_module(f"impl.nn.{name}")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"impl.nn.{_ELSEWHERE[name]}"), name)
    raise missing(name, (), "nn.optim")  # r[impl errors.name.missing]


def number_in_memory(value: float, dtype: DType | None = None) -> Tensor:
    """One number with memory of its own: changing it compiles nothing anew."""
    return Tensor.empty((), dtype=dtype).assign(value)


def laid_by(number: Any, parameter: Tensor) -> Any:
    """A number that all parameters share, where one of them is, or where another number is; one of
    Python's is everywhere.
    """
    here = not isinstance(number, Tensor) or number.device == parameter.device
    return number if here else number.to(parameter.device)


def wide(dtype: DType) -> DType:
    """The dtype of an optimiser's state: float32 for half-width parameters."""
    return sum_accumulator(dtype)


def _is_zero(value: Any) -> bool:
    """Whether it is the number 0, and no number in memory, at which nobody looks."""
    return not isinstance(value, Tensor) and not value


def _memory(parameter: Tensor) -> Tensor:
    """Zeros for a parameter's state."""
    return parameter.empty_like(wide(parameter.dtype)).assign(0)


def _wanted(given: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that require a gradient, each once. If none does, all floats are meant, but
    those of which somebody has said that they do not.

    Raises:
        DTypeError: there is none.
    """
    for one in given:
        if not isinstance(one, Tensor):  # r[impl errors.argument.refused]
            raise ArgumentError("optim", f"{one!r:.60} is no tensor",
                                "give model.parameters(), or a list of tensors")
    wanted = [p for p in given if p._parameter] or [
        p.requires_grad_() for p in given if p.is_floating_point() and p._parameter is None]
    if not wanted:
        raise DTypeError("optim", "no parameter requires a gradient",
                         "set requires_grad = True on the tensors to be changed")
    return list({id(p): p for p in wanted}.values())


def _refuse_values(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse what PyTorch refuses: a rate, a decay or a momentum below 0, and betas from 1 on.

    Raises:
        SettingError: one of them, which is a ValueError as PyTorch's is.
    """
    for name in _NOT_NEGATIVE & options.keys():
        value = options[name]
        if isinstance(value, (int, float)) and not value >= 0:  # r[impl errors.argument.refused]
            raise SettingError(kind, f"{name} is {value}", "give a number of 0 or more"
                               + "; to climb, maximize=True" * (name == "lr"))
    for value in options.get("betas", ()):
        if isinstance(value, (int, float)) and not 0 <= value < 1:
            # r[impl errors.argument.refused]
            raise SettingError(kind, f"betas are {options['betas']}",
                               "give numbers from 0 on, below 1")


class ParameterGroup(MutableMapping[str, Any]):
    """Parameters with the options they share, as a dict: `group["lr"] = 0.1`, `group["params"]`.

    The rate is a number in memory. So a step that was captured sees it change, and a step with
    another rate is the same kernels. So is a momentum that a schedule moves.
    """

    def __init__(self, params: list[Tensor], options: dict[str, Any],
                 remember: Callable[[ParameterGroup], None]) -> None:
        self.params, self.options, self._remember = params, options, remember
        self._given = options.pop("lr")
        self.rate = self.number(self._given)
        #: The momentum in memory, and what was given for it.
        self._moved: tuple[Tensor | None, float] = None, 0.0
        #: What each parameter has, and what all of them share, beside their values.
        self.states: list[State] = [{} for _ in params]
        self.shared: State = {}

    def number(self, value: float) -> Tensor:
        """A number in memory, where all parameters are: so no step has to bring it there.

        It has as many digits as they: a rate of 0.1 is another number in float32.
        """
        places = list(dict.fromkeys(parameter.device for parameter in self.params))
        wide = any(parameter.dtype is dtypes.float64 for parameter in self.params)
        number = number_in_memory(value, dtypes.float64 if wide else None)
        return laid_by(number, self.params[0]) if len(places) == 1 else number

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return self.params
        value: Any = self._rate() if name == "lr" else self.options[name]
        number, given = self._moved
        if name == "betas":
            return tuple(given if each is number else each for each in value)
        return given if value is number and number is not None else value

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "lr":
            self._given = value
            self.rate.assign(laid_by(value, self.rate))
        elif name != "params":
            self.options[name] = value
            self._remember(self)  # a momentum that is not 0 any more needs memory
        else:  # r[impl errors.argument.refused]
            raise ArgumentError("param_groups", "the parameters of a group stay",
                                "use optimizer.add_param_group for others")

    def move_momentum(self, value: float) -> None:
        """Set the momentum, or the first beta, as a number in memory, which the next will change.
        At 0 there is no momentum, which is another step.
        """
        number, name = self._moved[0], "betas" if "betas" in self.options else "momentum"
        known = self.options[name]
        if number is not None and number is (known[0] if name == "betas" else known) and value:
            number.assign(value)
        else:
            number = self.number(value) if value else None
            first = value if number is None else number
            self[name] = (first, *known[1:]) if name == "betas" else first
        self._moved = number, value

    def __delitem__(self, name: str) -> None:
        del self.options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("params", "lr", *self.options))

    def __len__(self) -> int:
        return 2 + len(self.options)

    def __repr__(self) -> str:
        return repr({**self, "params": [p.shape for p in self.params]})

    def _rate(self) -> float:
        """The number that was given, unless another one was assigned since."""
        rate: float = self.rate.item()
        same = isinstance(self._given, (int, float)) and np.float32(self._given) == np.float32(rate)
        return self._given if same else rate


def _let_say_how(kind: type[Optimizer]) -> None:
    """Let an optimiser be made with PyTorch's words for how it computes."""
    initialize: Any = vars(kind).get("__init__")
    if initialize is None:
        return

    @functools.wraps(initialize)
    def asked(self: Optimizer, *given: Any, foreach: bool | None = None,
              fused: bool | None = None, capturable: bool | None = None,
              differentiable: bool = False, **named: Any) -> None:
        if differentiable:  # r[impl errors.argument.refused]
            raise ArgumentError(f"optim.{kind.__name__}", "differentiable: a step is no part of a "
                                "graph", "write the update with tensors, and take func.grad of it")
        initialize(self, *given, **named)
        if fused is not None or vars(self).get("fused") is None:  # else a class below has chosen
            from impl.replay import TinyJit
            self.fused = fused
            self.replayed = None if fused is False else TinyJit(self._update)
            if self.replayed is not None:
                self.replayed.say_nothing()  # its advice is for a function of one's own
                self.replayed.after = 1 if fused else _BEFORE_CAPTURE
    known = inspect.signature(initialize).parameters
    words = [each for each in inspect.signature(asked, follow_wrapped=False).parameters.values()
             if each.kind is each.KEYWORD_ONLY and each.name not in known]
    asked.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        *known.values(), *words])
    kind.__init__ = asked  # type: ignore[method-assign]


class Optimizer:
    """The base of all optimisers. Subclasses give the change of one parameter.

    After some steps a step is captured and replayed (spec/replay.md): it builds no graph any more.
    With `fused=True` it is from the beginning; with `fused=False` it never is, and what gradients
    are computed from can be fused with what is made of them. `foreach` and `capturable` are taken,
    and all steps are so.
    """

    #: What was asked for.
    fused: bool | None = None
    #: The update, captured, unless the optimiser is not to be fused.
    replayed: Any = None
    #: Whether its momentum, or first beta, may be a number in memory.
    moves_momentum = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        made(cls)
        _let_say_how(cls)

    def __init__(self, params: Parameters, defaults: Mapping[str, Any]) -> None:
        """The parameters, or dicts of them with options that differ from the defaults.

        Raises:
            DTypeError: they are no list, or none requires a gradient.
        """
        if isinstance(params, (Tensor, Mapping)) or not isinstance(params, Iterable):
            raise DTypeError("optim", f"{type(params).__name__} is no list of tensors",
                             "give nn.state.get_parameters(model)")
        given: list[Any] = list(params)
        grouped = bool(given) and isinstance(given[0], Mapping)
        groups: list[Any] = [  # generators among them are walked once
            {**one, "params": _listed(one["params"])} for one in given] if grouped \
            else [{"params": given}]
        self.defaults = {"maximize": False, **defaults}
        self._before_steps: list[Any] = []
        self._after_steps: list[Any] = []
        self.param_groups: list[ParameterGroup] = []
        wanted = {id(p) for p in _wanted([p for one in groups for p in one["params"]])}
        for one in groups:
            self._add(one, [p for p in one["params"] if id(p) in wanted])

    def _add(self, given: Mapping[str, Any], params: list[Tensor]) -> None:
        """One more group, in memory, so that the first step has the plan of all.

        Raises:
            ArgumentError: an option is not known, or a parameter is in another group.
            SettingError: a rate or the like has a value with which nothing is learned.
        """
        options = {name: value for name, value in given.items() if name != "params"}
        unknown = sorted(options.keys() - self.defaults.keys() - {*_OF_SCHEDULES, *_HOW})
        kind = f"optim.{type(self).__name__}"
        if unknown:  # r[impl errors.argument.refused]
            raise ArgumentError(kind, f"a group has no option {unknown[0]}",
                                f"it takes {', '.join(self.defaults)}")
        _refuse_values(kind, {**self.defaults, **options})
        if {id(p) for p in self.params} & {id(p) for p in params}:
            # r[impl errors.argument.refused]
            raise ArgumentError(kind, "a parameter is in two groups", "name it in one of them")
        if len({id(p) for p in params}) < len(params):
            warn(kind, "a group names one parameter twice, and each step changes it twice",
                 "name it once")
        group = ParameterGroup(params, {**self.defaults, **options}, self._remember)
        self._remember(group)
        group.shared = {name: group.number(0.0) for name in self.counters}
        self.first_values(group)
        self.param_groups.append(group)
        Tensor.realize(*group.params, group.rate, *group.shared.values(),
                       *(one for state in group.states for one in state.values()))

    def _remember(self, group: ParameterGroup) -> None:
        """Give the parameters of a group what they need to have and have not yet."""
        for parameter, state in zip(group.params, group.states, strict=True):
            for name in self.memories(group.options, parameter):
                if name not in state:
                    state[name] = self.memory(name, parameter)

    #: Names of the numbers that all parameters of a group share.
    counters: tuple[str, ...] = ()

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        """The names of what a parameter of a group with these options needs to have."""
        return ()

    def memory(self, name: str, parameter: Tensor) -> Tensor:
        """One of these memories before the first step."""
        return _memory(parameter)

    def loaded(self, name: str, saved: Mapping[str, Any]) -> Any:
        """A memory's value by the `saved` ones of a parameter; None: its first value."""
        return saved.get(name)

    def first_values(self, group: ParameterGroup) -> None:
        """Change what a new group's parameters have, where it is not zeros."""

    @property
    def params(self) -> list[Tensor]:
        """All parameters, in the order of the groups."""
        return [p for group in self.param_groups for p in group.params]

    @property
    def state(self) -> dict[Tensor, State]:
        """What each parameter has beside its value."""
        return {p: {**state, **self._steps(group)} for group in self.param_groups
                for p, state in zip(group.params, group.states, strict=True)}

    @property
    def lr(self) -> Tensor:
        """The rate of the first group. To set it sets that of all groups, in their memory."""
        return self.param_groups[0].rate

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Let more parameters be changed: `{"params": [...], "lr": 0.1}`.

        Raises:
            ArgumentError: an option is not known, or a parameter is in another group.
        """
        self._add(param_group, _wanted(_listed(param_group["params"])))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or make them zeros."""
        for parameter in self.params:
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = parameter.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters, in memory. A closure is called before; its result is returned."""
        for hook in tuple(self._before_steps):
            hook(self, () if closure is None else (closure,), {})
        loss = None if closure is None else closure()
        gradients = [parameter.grad for parameter in self.params]
        if self.replayed is None:
            self._update(*gradients)
        else:
            self.replayed.compute(gradients)
            self.replayed(*gradients)
        for hook in tuple(self._after_steps):
            hook(self, () if closure is None else (closure,), {})
        return loss

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHook:
        """Call hook(optimizer, arguments, keywords) before each step."""
        return RemovableHook(self._before_steps, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHook:
        """Call hook(optimizer, arguments, keywords) after each step."""
        return RemovableHook(self._after_steps, hook)

    def schedule_step(self) -> list[Tensor]:
        """Give the parameters their new values, and return all tensors that changed."""
        return self._changed([parameter.grad for parameter in self.params])

    def _update(self, *gradients: Tensor | None) -> None:
        """A step, given the gradients of all parameters."""
        Tensor.realize(*self._changed(gradients))

    def _changed(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Give the parameters their new values, and return all tensors that changed."""
        changed: list[Tensor] = []
        left = iter(gradients)
        for group in self.param_groups:
            changed += self.before_step(group)
            for parameter, state in zip(group.params, group.states, strict=True):
                given = next(left)
                if given is not None:
                    gradient = given.detach().cast(wide(parameter.dtype))
                    gradient = -gradient if group.options["maximize"] else gradient
                    self.change(group, parameter, gradient, state)
                    changed += state.values()
        return [*self.params, *changed]

    def before_step(self, group: ParameterGroup) -> list[Tensor]:
        """Change what the parameters of a group share, here their steps; return what changed."""
        step = group.shared.get("step")
        return [] if step is None else [step.assign(step + 1)]

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        """Change one parameter and its state."""
        raise NotImplementedError

    def move(self, group: ParameterGroup, parameter: Tensor, update: Tensor) -> None:
        """Subtract lr * update."""
        value = parameter.detach()
        change = laid_by(group.rate, parameter) * update
        parameter.assign((value - change).cast(parameter.dtype))

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on besides the parameters, in PyTorch's form.

        `{"state": {0: {"exp_avg": tensor, ...}}, "param_groups": [{"lr": 0.1, "params": [0]}]}`:
        parameters are numbered through all groups. The tensors are those of the optimiser, not
        copies. `impl.save` writes it to a file.
        """
        states: dict[int, State] = {}
        groups = []
        for group in self.param_groups:
            numbers = list(range(len(states), len(states) + len(group.params)))
            states |= {number: {**state, **self._steps(group)}
                       for number, state in zip(numbers, group.states, strict=True)}
            groups.append({**group, "params": numbers})
        return {"state": {number: state for number, state in states.items() if state},
                "param_groups": groups}

    def _steps(self, group: ParameterGroup) -> State:
        return {"step": group.shared["step"]} if "step" in group.shared else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the optimiser was whose `state_dict` this is: options, rates, and memories.

        One of PyTorch's will do. What a parameter had before its first step is zeros.

        Raises:
            ShapeError: it is of other groups, or a tensor has another shape. Then nothing changed.
            ArgumentError: it is of another kind of optimiser: it has options or memories that this
                one has not, or lacks some. Then nothing changed, either.
            DTypeError: it is no `state_dict` of an optimiser.
        """
        operation = f"optim.{type(self).__name__}.load_state_dict"
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise DTypeError(operation, "it has no state and param_groups",
                             "give what state_dict() of an optimiser returned")
        saved = state_dict["param_groups"]
        sizes = [len(group.params) for group in self.param_groups]
        if [len(one["params"]) for one in saved] != sizes:
            raise ShapeError(operation, f"its groups have {[len(s['params']) for s in saved]} "
                             f"parameters, those here {sizes}",
                             "make the optimizer with the groups it was saved with")
        found = [self._loaded(group, one, state_dict["state"], operation)
                 for group, one in zip(self.param_groups, saved, strict=True)]
        for group, (options, states, step) in zip(self.param_groups, found, strict=True):
            group.update(options)
            group.states = [{name: tensor.assign(value) for name, (tensor, value) in each.items()}
                            for each in states]
            if "step" in group.shared:
                group.shared["step"].assign(step)
            Tensor.realize(group.rate, *group.shared.values(),
                           *(one for state in group.states for one in state.values()))

    def _loaded(self, group: ParameterGroup, saved: Mapping[str, Any], states: Mapping[Any, Any],
                operation: str) -> tuple[dict[str, Any], list[Loaded], float]:
        """Options, each tensor with the value that it is to have, and the number of steps."""
        options = self._options(saved, operation)
        given = [states.get(number, states.get(str(number), {})) for number in saved["params"]]
        found: list[Loaded] = []
        for place, (parameter, state, one) in enumerate(
                zip(group.params, group.states, given, strict=True)):
            found.append({})
            names = self.memories({**group.options, **options}, parameter)
            strange = sorted(name for name, value in one.items()
                             if value is not None and name not in (*names, "step", "begun"))
            if strange:
                self._refuse(operation, f"parameter {place} has {strange[0]} there")
            for name in names:
                tensor = state[name] if name in state else self.memory(name, parameter)
                saved_value = self.loaded(name, one)
                value = 0 if saved_value is None else laid_as(saved_value, tensor)
                if isinstance(value, Tensor) and value.shape != tensor.shape:
                    raise ShapeError(operation, f"{name} of parameter {place} has shape "
                                     f"{value.shape} there, and {tensor.shape} here",
                                     "give the parameters in the order in which they were saved")
                found[-1][name] = tensor, value
        # PyTorch counts the steps of each parameter.
        return options, found, max((float(one.get("step", 0)) for one in given), default=0.0)


    def _options(self, saved: Mapping[str, Any], operation: str) -> dict[str, Any]:
        """The options of a saved group.

        Raises:
            ArgumentError: one of them means something that is not known here, or one is missing.
        """
        options = {name: tuple(value) if isinstance(value, list) else value
                   for name, value in saved.items() if name not in ("params", *_HOW)}
        for name, value in list(options.items()):
            if name not in self.defaults and name not in _OF_SCHEDULES:
                if value:  # what is 0 or False changes nothing
                    self._refuse(operation, f"a group has {name} = {value!r} there")
                del options[name]
        lost = sorted(self.defaults.keys() - options.keys() - _LATE)
        if lost:
            self._refuse(operation, f"a group has no {lost[0]} there")
        return options

    def _refuse(self, operation: str, detail: str) -> None:
        # r[impl errors.argument.refused]
        raise ArgumentError(operation, f"{detail}: it is of another kind of optimizer",
                            f"load the state of an {type(self).__name__}, or make the optimizer "
                            "whose state it is")


def _listed(params: Any) -> list[Tensor]:
    """The parameters of a group, of which there may be one."""
    return [params] if isinstance(params, Tensor) else list(params)


class SGD(Optimizer):
    """Gradient descent with momentum, as PyTorch defines it."""

    #: Whether the decay of weights is no part of the gradient.
    decoupled = False
    moves_momentum = True

    def __init__(self, params: Parameters, lr: float = 0.001, momentum: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *, dampening: float = 0.0,
                 maximize: bool = False) -> None:
        if nesterov and (momentum <= 0 or dampening):  # r[impl errors.argument.refused]
            raise ArgumentError("optim.SGD", f"nesterov with momentum {momentum} and dampening "
                                f"{dampening}", "give a momentum, and no dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        if _is_zero(options["momentum"]):
            return ()
        # The first gradient is not dampened, so that it has to be known which is the first.
        return ("momentum_buffer", *["begun"] * bool(options.get("dampening")))

    def memory(self, name: str, parameter: Tensor) -> Tensor:
        return number_in_memory(0.0).to(parameter.device) if name == "begun" \
            else super().memory(name, parameter)

    def loaded(self, name: str, saved: Mapping[str, Any]) -> Any:
        if name == "begun" and "begun" not in saved:
            return Tensor(float(saved.get("momentum_buffer") is not None))
        return super().loaded(name, saved)

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        options = group.options
        momentum = laid_by(options["momentum"], parameter)
        if options["weight_decay"] and not self.decoupled:
            gradient = gradient + parameter.detach() * options["weight_decay"]
        if _is_zero(momentum):
            self.move(group, parameter, gradient)
            return
        velocity, part = state["momentum_buffer"], gradient
        if "begun" in state:
            begun = state["begun"]
            part = gradient * (1 - begun * options["dampening"])
            begun.assign(1.0)
        velocity.assign(velocity * momentum + part)
        self.move(group, parameter,
                  gradient + velocity * momentum if options["nesterov"] else velocity)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014); with `decoupled_weight_decay` it is AdamW, `layerwise` LAMB."""

    decoupled = False
    layerwise = False
    moves_momentum = True
    #: Steps, and 1 - b1**step and 1 - b2**step.
    counters = ("step", "first_weight", "second_weight")

    def __init__(self, params: Parameters, lr: float = 0.001,
                 b1: float | tuple[float, float] = 0.9, b2: float = 0.999, eps: float = 1e-8,
                 weight_decay: float = 0.0, betas: tuple[float, float] | None = None,
                 amsgrad: bool = False, *, maximize: bool = False,
                 decoupled_weight_decay: bool = False) -> None:
        if isinstance(b1, tuple):  # PyTorch has both in this place
            betas, b1 = b1, 0.0
        super().__init__(params, {
            "lr": lr, "betas": (b1, b2) if betas is None else tuple(betas), "eps": eps,
            "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * bool(options["amsgrad"]))

    def before_step(self, group: ParameterGroup) -> list[Tensor]:
        step, *weights = group.shared.values()
        step.assign(step + 1)
        for weight, beta in zip(weights, group.options["betas"], strict=True):
            # 1 - beta**step in a form that loses no digits.
            exponent = laid_by(beta, step).log() if isinstance(beta, Tensor) else \
                math.log(beta) if beta else -math.inf
            weight.assign(-(step * exponent).expm1())
        return [step, *weights]

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        options, value = group.options, parameter.detach()
        (b1, b2), decay = options["betas"], options["weight_decay"]
        b1 = laid_by(b1, parameter)
        decoupled = options["decoupled_weight_decay"]
        if decay and not decoupled:
            gradient = gradient + value * decay
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.assign(first * b1 + gradient * (1 - b1))
        second.assign(second * b2 + gradient * gradient * (1 - b2))
        most = second
        if "max_exp_avg_sq" in state:
            most = state["max_exp_avg_sq"]
            most.assign(most.maximum(second))
        size = (most / laid_by(group.shared["second_weight"], parameter)).sqrt() + options["eps"]
        update = (first / laid_by(group.shared["first_weight"], parameter)) / size
        if decay and decoupled:
            update = update + value * decay
        if self.layerwise:
            size, length = value.norm(), update.norm()
            ratio = ((size > 0) & (length > 0)).where(size / length, 1.0)
            update = update * ratio
        self.move(group, parameter, update)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017)."""

    decoupled = True

    def __init__(self, params: Parameters, lr: float = 0.001,
                 b1: float | tuple[float, float] = 0.9, b2: float = 0.999, eps: float = 1e-8,
                 weight_decay: float = 0.01, betas: tuple[float, float] | None = None,
                 amsgrad: bool = False, *, maximize: bool = False) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas, amsgrad, maximize=maximize)


class LAMB(AdamW):
    """AdamW whose steps are as long as the parameter is large (You and others, 2019)."""

    layerwise = True


class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of squared gradients, as PyTorch defines it."""

    moves_momentum = True

    def __init__(self, params: Parameters, lr: float = 0.01, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False, *, maximize: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay,
            "momentum": momentum, "centered": centered, "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("square_avg", *["grad_avg"] * bool(options["centered"]),
                *["momentum_buffer"] * (not _is_zero(options["momentum"])))

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        options, alpha = group.options, group.options["alpha"]
        if options["weight_decay"]:
            gradient = gradient + parameter.detach() * options["weight_decay"]
        size = square = state["square_avg"]
        square.assign(square * alpha + gradient.square() * (1 - alpha))
        if "grad_avg" in state:
            mean = state["grad_avg"]
            mean.assign(mean * alpha + gradient * (1 - alpha))
            size = square - mean.square()
        update = gradient / (size.sqrt() + options["eps"])
        if not _is_zero(options["momentum"]):
            velocity, momentum = state["momentum_buffer"], laid_by(options["momentum"], parameter)
            velocity.assign(velocity * momentum + update)
            update = velocity * 1
        self.move(group, parameter, update)


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi and others, 2011)."""

    counters = ("step",)

    def __init__(self, params: Parameters, lr: float = 0.01, lr_decay: float = 0.0,
                 weight_decay: float = 0.0, initial_accumulator_value: float = 0.0,
                 eps: float = 1e-10, *, maximize: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("sum",)

    def memory(self, name: str, parameter: Tensor) -> Tensor:
        """One of these memories before the first step."""
        return _memory(parameter)

    def loaded(self, name: str, saved: Mapping[str, Any]) -> Any:
        """A memory's value by the `saved` ones of a parameter; None: its first value."""
        return saved.get(name)

    def first_values(self, group: ParameterGroup) -> None:
        for state in group.states:
            state["sum"].assign(group.options["initial_accumulator_value"])

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        if group.options["weight_decay"]:
            gradient = gradient + parameter.detach() * group.options["weight_decay"]
        total = state["sum"]
        total.assign(total + gradient.square())
        update = gradient / (total.sqrt() + group.options["eps"])
        if group.options["lr_decay"]:
            steps = laid_by(group.shared["step"], parameter) - 1
            update = update / (steps * group.options["lr_decay"] + 1)
        self.move(group, parameter, update)


class Lion(Optimizer):
    """Steps of equal length, by the sign of a running mean (Chen and others, 2023)."""

    def __init__(self, params: Parameters, lr: float = 0.0001,
                 betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("exp_avg",)

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        mean, (near, far) = state["exp_avg"], group.options["betas"]
        update = (mean * near + gradient * (1 - near)).sign()
        if group.options["weight_decay"]:
            update = update + parameter.detach() * group.options["weight_decay"]
        mean.assign(mean * far + gradient * (1 - far))
        self.move(group, parameter, update)


class LARS(SGD):
    """SGD whose steps are as long as the parameter is large (You and others, 2017)."""

    decoupled = True

    def __init__(self, params: Parameters, lr: float = 0.001, momentum: float = 0.9,
                 weight_decay: float = 0.0001, nesterov: bool = False,
                 tcoef: float = 0.001) -> None:
        Optimizer.__init__(self, params, {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov,
            "tcoef": tcoef})

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        value, options = parameter.detach(), group.options
        decay, tcoef = options["weight_decay"], options["tcoef"]
        size, length = value.norm(), gradient.norm()
        both = (size > 0) & (length > 0)
        ratio = both.where(tcoef * size / (length + decay * size), 1.0)
        super().change(group, parameter, (gradient + value * decay) * ratio, state)


class Muon(SGD):
    """SGD with momentum, whose steps for matrices are made nearly orthogonal (Jordan, 2024)."""

    decoupled = True

    def __init__(self, params: Parameters, lr: float = 0.02, momentum: float = 0.95,
                 weight_decay: float = 0.1, nesterov: bool = True, steps: int = 5) -> None:
        Optimizer.__init__(self, params, {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov,
            "ns_steps": steps})

    def move(self, group: ParameterGroup, parameter: Tensor, update: Tensor) -> None:
        options = group.options
        if len(parameter.shape) >= 2:
            update = orthogonal(update.flatten(1), options["ns_steps"]).reshape(parameter.shape)
            rows, columns = parameter.shape[0], parameter.numel() // parameter.shape[0]
            update = update * max(1.0, rows / columns) ** 0.5
        super().move(group, parameter, update + parameter.detach() * options["weight_decay"])


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """A matrix with nearly the same singular vectors, and singular values near 1, by iterations of
    Newton and Schulz with the coefficients of Jordan (2024).
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = x * 3.4445 + (square * -4.7750 + square @ square * 2.0315) @ x
    return x.T if tall else x


def _each(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """One tensor, or several, also of an iterator, which is read once; of a model its parameters.
    """
    found = getattr(parameters, "parameters", lambda: parameters)()
    return [found] if isinstance(found, Tensor) else list(found)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of those that have one."""
    return [p.grad for p in _each(parameters) if p.grad is not None]


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                    norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Scale all gradients so that their norm, taken together, is at most `max_norm`; return what it
    was.
    """
    parameters = _each(parameters)
    gradients = _gradients(parameters)
    if not gradients:
        return Tensor(0.0)
    total = get_total_norm(gradients, norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):  # r[impl errors.argument.refused]
        raise ArgumentError("clip_grad_norm_", f"the norm is {total.item()}",
                            "look for NaN and infinity in the gradients")
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of several tensors, taken together."""
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return Tensor.stack([one.norm(norm_type) for one in given]).norm(norm_type) if given \
        else Tensor(0.0)


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                          total_norm: Tensor) -> None:
    """Scale all gradients as `clip_grad_norm_` does, by a norm that is known."""
    factor = (max_norm / (total_norm + 1e-6)).clip(max=1.0)
    for gradient in _gradients(parameters):
        gradient.assign(gradient * factor.cast(gradient.dtype))


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Move each element of each gradient into [-clip_value, clip_value]."""
    for gradient in _gradients(parameters):
        gradient.assign(gradient.clip(-clip_value, clip_value))
