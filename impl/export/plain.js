// The runner in plain JavaScript. `program` and `kernels` stand above.

const arena = new ArrayBuffer(program.arena);
const states = program.states.map((port) => new Uint8Array(port.bytes));
let loaded = program.states.length === 0;

/** Read all states: the address of a safetensors file, or its content. */
export async function load(source) {
  for (const [place, bytes] of (await contents(source)).entries()) states[place].set(bytes);
  loaded = true;
}

/** The elements of each state, by name. */
export async function save() {
  return Object.fromEntries(program.states.map((port, place) =>
    [port.name, new arrays[port.dtype](states[place].slice().buffer)]));
}

/** One call: arrays and integers by name. Gives arrays by name. `watch` is told of each kernel. */
export async function run(given = {}, watch = null) {
  const integers = checked(program, given, loaded);
  const inputs = program.inputs.map(({name}) => new Uint8Array(
    given[name].buffer, given[name].byteOffset, given[name].byteLength));
  const outputs = program.outputs.map((port) => new Uint8Array(port.bytes));
  const places = {input: inputs, output: outputs, state: states};
  const bytes = ([kind, number]) =>
    kind === "arena" ? new Uint8Array(arena, number) : places[kind][number];
  const random = program.random ? new Int32Array(bytes(program.random).buffer) : [0, 0];
  for (const [number, {kernel, memory, bytes: sizes, writes, values}] of program.calls.entries()) {
    kernels[kernel]([...memory.map(bytes), ...values.map((one) => valued(one, integers, random))]);
    watch?.({number, kernel, memory: memory.map((spot, place) =>
      ({spot, written: writes.includes(place), bytes: bytes(spot).slice(0, sizes[place])}))});
  }
  for (const {source, target, bytes: count} of program.copies)
    bytes(target).set(bytes(source).subarray(0, count));
  if (program.random) random[0] = (random[0] + program.random_used) % 2 ** 31;
  return Object.fromEntries(program.outputs.map((port, place) =>
    [port.name, new arrays[port.dtype](outputs[place].buffer)]));
}
