// What both runners do alike: what they read from a file, and what they ask of a call.

const arrays = {bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
                uint16: Uint16Array, float16: Uint16Array, bfloat16: Uint16Array,
                int32: Int32Array, uint32: Uint32Array, float32: Float32Array,
                float64: Float64Array};

/** The bytes of each state, from the address of a safetensors file, or from its content. */
async function contents(source) {
  if (!(source instanceof ArrayBuffer)) {
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(`${program.name}: ${source}: ${answer.status}`);
    source = await answer.arrayBuffer();
  }
  const size = Number(new DataView(source).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(source, 8, size)));
  return program.states.map((port) => {
    const [start, stop] = header[port.name]?.data_offsets ?? [0, -1];
    if (stop - start !== port.bytes)
      throw new Error(`${program.name}: the file is not of this program: ${port.name}`);
    return new Uint8Array(source, 8 + size + start, port.bytes);
  });
}

/** The integers of a call, in their order. Throws where a call is not what was exported. */
function checked(program, given, loaded) {
  if (!loaded) throw new Error(`${program.name}: nothing was loaded yet: await load(...)`);
  const known = [...program.inputs, ...program.integers].map(({name}) => name);
  for (const name of Object.keys(given))
    if (!known.includes(name))
      throw new TypeError(`${program.name}: no argument ${name}; it has ${known.join(", ")}`);
  for (const {name, dtype, bytes, exact} of program.inputs) {
    const array = given[name], wanted = arrays[dtype];
    if (!(array instanceof wanted))
      throw new TypeError(`${program.name}: ${name} is no ${wanted.name}`);
    if (exact ? array.byteLength !== bytes : array.byteLength > bytes)
      throw new RangeError(`${program.name}: ${name} has ${array.length} elements, ` +
                           `not ${bytes / array.BYTES_PER_ELEMENT}`);
  }
  const integers = program.integers.map(({name, least, greatest}) => {
    if (!Number.isInteger(given[name]) || given[name] < least || given[name] > greatest)
      throw new RangeError(`${program.name}: ${name} = ${given[name]} is not in ` +
                           `${least} to ${greatest}`);
    return given[name];
  });
  if (!conditions(integers))
    throw new RangeError(`${program.name}: for these integers the function would do something ` +
                         "else than what was exported");
  return integers;
}

/** What a kernel is told besides its memory. */
function valued([kind, number], integers, random) {
  return kind === "variable" ? integers[number] : kind === "number" ? number
    : kind === "key" ? random[1] : random[0] + number;
}
