// What both runners ask of a call.

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
