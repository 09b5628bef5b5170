// Python for pages, with the scheduler, in a thread of its own: the page stays quick, and what runs
// for too long can be ended.

let python = null, half = null;

/** Load Python from `host` and the scheduler from `archive`. */
async function load({host, archive}) {
  postMessage({doing: "Loading Python…"});
  const {loadPyodide} = await import(new URL("pyodide.mjs", host));
  python = await loadPyodide({indexURL: host});
  postMessage({doing: "Loading the scheduler…"});
  const found = await fetch(archive);
  if (!found.ok) throw new Error(`${archive}: ${found.status}`);
  python.unpackArchive(await found.arrayBuffer(), "zip", {extractDir: "/home/pyodide"});
  postMessage({doing: "Starting the scheduler…"});
  python.runPython(
    "import sys\nsys.dont_write_bytecode = True\nsys.path.insert(0, '/home/pyodide')");
  half = python.pyimport("playground_page");
}

/** NumPy comes from where Python came from. */
async function loadNumPy() {
  postMessage({doing: "Loading NumPy…"});
  await python.loadPackage("numpy", {checkIntegrity: true, messageCallback: () => {}});
}

onmessage = async ({data: {call, given, where}}) => {
  try {
    if (!half) await load(where);
    if (call === "values") await loadNumPy();
    postMessage({doing: {made: "Scheduling…", report: "Printing…", values: "Computing…"}[call]});
    postMessage({answer: half[call](given)});
  } catch (error) {
    postMessage({failed: String(error.message ?? error)});
  }
};
