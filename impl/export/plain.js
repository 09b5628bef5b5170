// The runner in plain JavaScript. `program` and `kernels` stand above.

const widths = {bool: 1, int8: 1, uint8: 1, int16: 2, uint16: 2, float16: 2, bfloat16: 2,
                int32: 4, uint32: 4, float32: 4, float64: 8};
const arrays = {bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
                uint16: Uint16Array, float16: Uint16Array, bfloat16: Uint16Array,
                int32: Int32Array, uint32: Uint32Array, float32: Float32Array,
                float64: Float64Array};
const arena = new ArrayBuffer(program.arena);
const states = program.states.map((port) => new Uint8Array(port.bytes));
let loaded = program.states.length === 0;

/** Read all states: the address of a safetensors file, or its content. */
export async function load(source) {
  if (!(source instanceof ArrayBuffer)) {
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(`${program.name}: ${source}: ${answer.status}`);
    source = await answer.arrayBuffer();
  }
  const size = Number(new DataView(source).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(source, 8, size)));
  program.states.forEach((port, place) => {
    const [start, stop] = header[port.name]?.data_offsets ?? [0, -1];
    if (stop - start !== port.bytes)
      throw new Error(`${program.name}: the file is not of this program: ${port.name}`);
    states[place].set(new Uint8Array(source, 8 + size + start, port.bytes));
  });
  loaded = true;
}

/** The elements of each state, by name. */
export async function save() {
  return Object.fromEntries(program.states.map((port, place) =>
    [port.name, new arrays[port.dtype](states[place].slice().buffer)]));
}

/** One call: arrays and integers by name. Gives arrays by name. */
export async function run(given = {}) {
  const integers = checked(program, given, loaded);
  const inputs = program.inputs.map(({name}) => new Uint8Array(
    given[name].buffer, given[name].byteOffset, given[name].byteLength));
  const outputs = program.outputs.map((port) => new Uint8Array(port.bytes));
  const places = {input: inputs, output: outputs, state: states};
  const bytes = ([kind, number]) =>
    kind === "arena" ? new Uint8Array(arena, number) : places[kind][number];
  const random = program.random ? new Int32Array(bytes(program.random).buffer) : [0, 0];
  for (const {kernel, memory, values} of program.calls)
    kernels[kernel]([...memory.map(bytes), ...values.map((one) => valued(one, integers, random))]);
  for (const {source, target, bytes: count} of program.copies)
    bytes(target).set(bytes(source).subarray(0, count));
  if (program.random) random[0] = (random[0] + program.random_used) % 2 ** 31;
  return Object.fromEntries(program.outputs.map((port, place) =>
    [port.name, new arrays[port.dtype](outputs[place].buffer)]));
}
