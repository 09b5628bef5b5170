// The playground: a program of the reader, its schedule, and its kernels in three languages.

import {button, element, figures, onColours, said} from "./elements.js";

const KEY = "program", LANGUAGES = ["C", "WGSL", "CUDA"];
const at = (name) => new URL(`../playground/${name}`, import.meta.url).href;

/** The program that a link carries, if it does. */
function shared() {
  return new URLSearchParams(location.hash.slice(1)).get(KEY);
}

const linkTo = (program) => `#${new URLSearchParams({[KEY]: program})}`;

/** Python in a worker. One question at a time; whoever ends it gets a new one. */
class Python {
  constructor(where, told) {
    Object.assign(this, {where, told, worker: null, waiting: null});
  }

  /** What a function of the playground's half in Python answers. */
  ask(call, given) {
    if (!this.worker) {
      this.worker = new Worker(at("worker.js"), {type: "module"});
      this.worker.onmessage = ({data}) => {
        if (data.doing) return this.told(data.doing);
        if (data.failed) this.waiting?.reject(new Error(data.failed));
        else this.waiting?.resolve(data.answer);
      };
      this.worker.onerror = (event) => {
        event.preventDefault();
        this.end(event.message || "the script of the worker cannot be loaded");
      };
    }
    this.worker.postMessage({call, given, where: this.where});
    return new Promise((resolve, reject) => { this.waiting = {resolve, reject}; });
  }

  end(why) {
    this.worker?.terminate();
    this.worker = null;
    this.waiting?.reject(new Error(why));
  }
}

/** The graph as it was written: a line for each node, with those that it is made of. */
function graph(nodes) {
  return element("ol", {class: "play-graph", tabindex: 0, "aria-label": "Nodes of the graph"}, ...nodes.map(({number, name, dtype, shape, said, of, result}) =>
    element("li", {class: result ? "result" : ""},
      element("span", {class: "live-number"}, number),
      element("code", {}, `${name}${said && ` ${said}`}`),
      ` ${dtype} ${shape}`,
      of.length ? `, of ${of.join(", ")}` : "", result ? element("b", {}, " result") : null)));
}

/** A report in a frame of its own, as high as it is, in the colours of the page. */
class Report {
  constructor() {
    this.frame = element("iframe", {class: "play-report", title: "Report of the schedule"});
    this.address = null;
    this.frame.addEventListener("load", () => this.fit());
    onColours(() => this.colour());
  }

  show(html) {
    if (this.address) URL.revokeObjectURL(this.address);
    this.address = URL.createObjectURL(new Blob([html], {type: "text/html"}));
    this.frame.src = this.address;
  }

  colour() {
    const page = this.frame.contentDocument?.documentElement;
    if (page) page.dataset.theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  }

  fit() {
    const page = this.frame.contentDocument;
    if (!page?.body) return;
    this.colour();
    const first = page.querySelector("#source details");
    if (first) first.open = true;  // the text is what was asked for
    const measure = () => { this.frame.style.height = `${page.body.scrollHeight + 24}px`; };
    new this.frame.contentWindow.ResizeObserver(measure).observe(page.body);
    measure();
  }
}

figures("playground", (body, {host, examples}) => {
  const where = {host: new URL(host, document.baseURI).href, archive: at("playground.zip")};
  const doing = said(), refused = element("p", {class: "play-refused", role: "alert", hidden: true});
  const python = new Python(where, (words) => { doing.textContent = words; });
  const report = new Report(), results = element("div", {hidden: true});
  const nodes = element("div"), shown = element("div", {class: "play-values"});
  let busy = false, program = "";

  const text = element("textarea", {id: "play-program", rows: 9, spellcheck: "false",
    autocapitalize: "off", autocomplete: "off", "aria-describedby": "play-keys",
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); make(); }
    }});
  const choice = element("select", {id: "play-example",
    onchange: () => { if (examples[choice.value]) text.value = examples[choice.value].program; }},
    element("option", {value: ""}, "choose"),
    ...examples.map(({name}, place) => element("option", {value: place}, name)));
  const languages = element("fieldset", {class: "play-languages"},
    element("legend", {}, "Kernels in the report as"), ...LANGUAGES.map((name) =>
      element("label", {}, element("input", {type: "radio", name: "play-language", value: name,
        onchange: () => print()}), ` ${name}`)));
  const language = () => languages.querySelector("input:checked")?.value ?? "C";
  const go = button("Schedule it", () => make()), stop = button("Stop", () => python.end("stopped"));
  const link = button("Link to this program", async () => {
    history.replaceState(null, "", linkTo(text.value));
    try {
      await navigator.clipboard.writeText(location.href);
      doing.textContent = "The link is copied, and stands in the address bar.";
    } catch { doing.textContent = "The link stands in the address bar."; }
  });
  const compute = button("Compute the values (loads NumPy)", () => run(async () => {
    const {values, refused: why} = JSON.parse(await python.ask("values", program));
    if (why) return refuse(why);
    shown.replaceChildren(...values.map((value) => element("pre", {}, value)));
    doing.textContent = "Computed.";
  }));

  /** Do something, one at a time; what goes wrong is said. */
  async function run(work) {
    if (busy) return;
    busy = true;
    refuse("");
    for (const each of [go, compute]) each.disabled = true;
    stop.hidden = false;
    try { await work(); } catch (error) {
      refuse(error.message === "stopped" ? "Stopped. The next press loads Python again."
        : `This does not work here: ${error.message}`);
    } finally {
      busy = false;
      for (const each of [go, compute]) each.disabled = false;
      stop.hidden = true;
    }
  }

  function refuse(why) {
    refused.textContent = why;
    refused.hidden = !why;
    if (why) doing.textContent = "";
  }

  const make = () => run(async () => {
    results.hidden = true;
    const written = text.value, found = JSON.parse(await python.ask("made", written));
    if (found.refused) return refuse(found.refused);
    program = written;
    nodes.replaceChildren(graph(found.graph));
    shown.replaceChildren();
    report.show(await python.ask("report", language()));
    results.hidden = false;
    doing.textContent = found.said;
    results.dataset.made = Number(results.dataset.made ?? 0) + 1;
  });
  const print = () => run(async () => {
    report.show(await python.ask("report", language()));
    doing.textContent = `The report has ${language()}.`;
  });

  languages.querySelector("input").checked = true;
  stop.hidden = true;
  text.value = shared() ?? examples[0].program;
  addEventListener("hashchange", () => { if (shared() !== null) text.value = shared(); });
  results.append(
    element("details", {}, element("summary", {}, "The graph, as it was written"), nodes),
    languages, report.frame,
    element("p", {class: "live-buttons"}, compute), shown);
  body.replaceChildren(
    element("p", {}, element("label", {for: "play-example"}, "Example: "), choice),
    element("label", {for: "play-program"}, "Program"), text,
    element("p", {id: "play-keys", class: "live-why"}, "The last line is what is scheduled. Ctrl+Enter " +
      `does so. The first time, Python is loaded from ${new URL(where.host).host}: about 14 MB.`),
    element("p", {class: "live-buttons"}, go, stop, link),
    doing, refused, results);
});
