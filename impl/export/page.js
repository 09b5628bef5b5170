// The runner of a page: WebGPU where the browser has a device for it, and else plain JavaScript.
// `modules` stand above.

let chosen = null;

/** The module that runs the kernels, chosen once. */
function choose() {
  chosen ??= (async () => {
    try {
      const module = await modules.webgpu();
      await module.prepare();
      return {module, target: "webgpu", reason: ""};
    } catch (error) {
      return {module: await modules.js(), target: "js", reason: error.message};
    }
  })();
  return chosen;
}

/** What runs the kernels: "webgpu" or "js"; and if it is not WebGPU, the reason. */
export async function runner() {
  const {target, reason} = await choose();
  return {target, reason};
}

/** Read all states: the address of a safetensors file, or its content. */
export async function load(source) {
  return (await choose()).module.load(source);
}

/** The elements of each state, by name. */
export async function save() {
  return (await choose()).module.save();
}

/** One call: arrays and integers by name. Gives arrays by name. `watch` is told of each kernel. */
export async function run(given = {}, watch = null) {
  return (await choose()).module.run(given, watch);
}
