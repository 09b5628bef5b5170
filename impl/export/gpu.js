// The runner for WebGPU. `program` and `shaders` stand above.

const words = (bytes) => Math.max(Math.ceil(bytes / 4) * 4, 4);
const told = 256;  // bytes in which a launch is told about itself
const random = new Int32Array(2);
let ready = null, last = Promise.resolve(), loaded = program.states.length === 0, failed = null;

/** The device, and all that is made on it once. */
function start() {
  ready ??= (async () => {
    const adapter = await globalThis.navigator?.gpu?.requestAdapter();
    if (!adapter) throw new Error(`${program.name}: the browser gives no WebGPU adapter`);
    const device = await adapter.requestDevice();
    device.addEventListener("uncapturederror", ({error}) => { failed ??= error; });
    const {STORAGE, UNIFORM, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage;
    const made = (bytes, usage = STORAGE | COPY_SRC | COPY_DST) =>
      device.createBuffer({size: words(bytes), usage});
    const buffers = {
      input: program.inputs.map(({bytes}) => made(bytes)),
      output: program.outputs.map(({bytes}) => made(bytes)),
      state: program.states.map(({bytes}) => made(bytes)),
      arena: made(program.arena), scratch: made(program.scratch), zeros: made(4)};
    const result = made(program.outputs.reduce((sum, {bytes}) => sum + words(bytes), 0),
                        MAP_READ | COPY_DST);
    const launches = program.calls.reduce((sum, call) => sum + call.phases, 0);
    const uniform = made(Math.max(launches, 1) * told, UNIFORM | COPY_DST);
    const layouts = new Map(), pipelines = new Map();
    const layout = (count) => layouts.get(count) ?? layouts.set(count, device.createBindGroupLayout(
      {entries: ["uniform", "read-only-storage", ...Array(count).fill("storage")].map(
        (type, binding) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}}))}))
      .get(count);
    const pipeline = (name, lanes, count) => {
      const key = `${name} ${lanes}`;
      if (!pipelines.has(key))
        pipelines.set(key, device.createComputePipeline({
          layout: device.createPipelineLayout({bindGroupLayouts: [layout(count)]}),
          compute: {module: device.createShaderModule({code: shaders[name]}), entryPoint: "main",
                    constants: {lanes}}}));
      return pipelines.get(key);
    };
    return {device, buffers, result, uniform, layout, pipeline};
  })();
  return ready;
}

/** Wait for the device. Throws where there is none. */
export async function prepare() {
  await start();
}

const offset = ([kind, number]) => kind === "arena" ? number : 0;
const buffer = (buffers, [kind, number]) => kind === "arena" ? buffers.arena : buffers[kind][number];

/** Read all states: the address of a safetensors file, or its content. */
export async function load(source) {
  const {device, buffers} = await start();
  for (const [place, bytes] of (await contents(source)).entries()) {
    const whole = new Uint8Array(words(bytes.length));
    whole.set(bytes);
    device.queue.writeBuffer(buffers.state[place], 0, whole);
    if (program.random?.[1] === place) random.set(new Int32Array(whole.buffer));
  }
  loaded = true;
}

/** What stands in some buffers, as the arrays of ports. */
async function read(device, encoder, result, ports, sources) {
  let place = 0;
  const places = ports.map(({bytes}, number) => {
    encoder.copyBufferToBuffer(sources[number], 0, result, place, words(bytes));
    return (place += words(bytes)) - words(bytes);
  });
  device.queue.submit([encoder.finish()]);
  await result.mapAsync(GPUMapMode.READ);
  const content = result.getMappedRange().slice(0);
  result.unmap();
  if (failed) throw new Error(`${program.name}: ${failed.message}`);
  return Object.fromEntries(ports.map(({name, dtype, bytes}, number) => [
    name, new arrays[dtype](content.slice(places[number], places[number] + bytes))]));
}

/** The elements of each state, by name. */
export async function save() {
  const {device, buffers} = await start();
  const all = program.states.reduce((sum, {bytes}) => sum + words(bytes), 0);
  const result = device.createBuffer({size: words(all),
                                      usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
  return read(device, device.createCommandEncoder(), result, program.states, buffers.state);
}

/** One call: arrays and integers by name. Gives arrays by name. Calls wait for each other. `watch`
 * is told of each kernel, which costs a copy of all its memory. */
export function run(given = {}, watch = null) {
  return last = last.catch(() => {}).then(() => once(given, watch));
}

/** What is kept of each kernel's memory for who watches: a copy of it behind each kernel. */
function kept(device, encoder, buffers) {
  const sizes = program.calls.map(({bytes}) => bytes.reduce((sum, each) => sum + words(each), 0));
  const all = device.createBuffer({size: words(sizes.reduce((sum, each) => sum + each, 0)),
                                   usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
  let place = 0;
  const found = [];
  return {
    after(number, {kernel, memory, bytes, writes}) {
      found.push({number, kernel, memory: memory.map((spot, each) => {
        const start = place, size = words(bytes[each]);
        encoder.copyBufferToBuffer(buffer(buffers, spot), offset(spot), all, start, size);
        place += size;
        return {spot, written: writes.includes(each), start, stop: start + bytes[each]};
      })});
    },
    async tell(watch) {
      await all.mapAsync(GPUMapMode.READ);
      const content = all.getMappedRange().slice(0);
      all.destroy();
      for (const {number, kernel, memory} of found)
        watch({number, kernel, memory: memory.map(({spot, written, start, stop}) =>
          ({spot, written, bytes: new Uint8Array(content.slice(start, stop))}))});
    }};
}

async function once(given, watch) {
  const integers = checked(program, given, loaded);
  const {device, buffers, result, uniform, layout, pipeline} = await start();
  program.inputs.forEach(({name}, place) => {
    const {buffer: content, byteOffset, byteLength} = given[name];
    const whole = new Uint8Array(words(byteLength));
    whole.set(new Uint8Array(content, byteOffset, byteLength));
    device.queue.writeBuffer(buffers.input[place], 0, whole);
  });
  const numbers = new Int32Array(uniform.size / 4), encoder = device.createCommandEncoder();
  const watched = watch && kept(device, encoder, buffers);
  let pass = encoder.beginComputePass(), launch = 0;
  for (const [number, call] of program.calls.entries()) {
    const {kernel, memory, bytes, values, phases, launches} = call;
    const passed = values.map((one) => valued(one, integers, random));
    const bound = memory.map((spot, number) => ({buffer: buffer(buffers, spot),
                                                 offset: offset(spot), size: words(bytes[number])}));
    if (phases > 1) bound.push({buffer: buffers.scratch});
    launches(passed).forEach(([groups, lanes], phase) => {
      numbers.set([phase, groups, ...memory.map(() => 0), ...passed], launch * told / 4);
      const entries = [{buffer: uniform, offset: launch++ * told, size: told},
                       {buffer: buffers.zeros, size: 4}, ...bound];
      if (!groups) return;
      pass.setPipeline(pipeline(kernel, lanes, bound.length));
      pass.setBindGroup(0, device.createBindGroup({
        layout: layout(bound.length),
        entries: entries.map((resource, binding) => ({binding, resource}))}));
      pass.dispatchWorkgroups(Math.min(groups, 65535), Math.ceil(groups / 65535));
    });
    if (watched) {
      pass.end();
      watched.after(number, call);
      pass = encoder.beginComputePass();
    }
  }
  pass.end();
  device.queue.writeBuffer(uniform, 0, numbers);
  for (const {source, target, bytes} of program.copies)
    encoder.copyBufferToBuffer(buffer(buffers, source), offset(source), buffer(buffers, target),
                               offset(target), words(bytes));
  const found = await read(device, encoder, result, program.outputs, buffers.output);
  await watched?.tell(watch);
  if (program.random) {
    random[0] = (random[0] + program.random_used) % 2 ** 31;
    device.queue.writeBuffer(buffer(buffers, program.random), 0, random);
  }
  return found;
}
