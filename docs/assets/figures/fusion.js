// Where kernels begin: put boundaries between the lines of a program, and move them.

import {bytesText, button, counted, element, figures, said} from "./elements.js";

/** The pieces between boundaries: of each its first and its last line. */
function pieces(cut) {
  const found = [];
  let first = 0;
  for (let at = 0; at <= cut.length; at++)
    if (at === cut.length || cut[at]) {
      found.push([first, at]);
      first = at + 1;
    }
  return found;
}

/** The lines of each kernel of a piece: where it is two, the place that fits both their bytes. */
function kernels({segments}, [first, last]) {
  const made = segments[`${first} ${last}`].kernels;
  for (let at = first; made.length === 2 && at < last; at++) {
    const [one, two] = [segments[`${first} ${at}`].kernels, segments[`${at + 1} ${last}`].kernels];
    if (one.length === 1 && two.length === 1 && one[0].bytes === made[0].bytes &&
        two[0].bytes === made[1].bytes) return [[first, at], [at + 1, last]];
  }
  return [[first, last]];
}

figures("fusion", (body, data) => {
  const cut = data.lines.slice(1).map(() => true), told = said();
  const program = element("ol", {class: "live-program"}), bar = element("div", {class: "live-bar"});
  const why = element("ul", {class: "live-reasons"});
  const gaps = cut.map((_, at) => {
    const made = button("", () => turn(at), {class: "live-gap", onkeydown: (event) => {
      const to = {ArrowUp: at - 1, ArrowDown: at + 1}[event.key];
      if (to === undefined) return;
      event.preventDefault();
      move(at, to);
    }, onpointerdown: (event) => drag(event, at)});
    made.draggable = false;
    return made;
  });

  const named = ([first, last]) =>
    data.lines.slice(first, last + 1).map(({makes}) => makes).join(", ");

  function turn(at) {
    cut[at] = !cut[at];
    draw();
  }

  /** A boundary goes to a neighbouring place, if there is none; the focus goes with it. */
  function move(at, to) {
    if (to < 0 || to >= cut.length) return;
    if (cut[at] && !cut[to]) [cut[at], cut[to]] = [false, true];
    gaps[to].focus();
    draw();
  }

  function drag(event, at) {
    if (!cut[at]) return;
    let now = at;
    const moved = ({clientY}) => {
      const to = gaps.findIndex((gap) => {
        const box = gap.getBoundingClientRect();
        return Math.abs(clientY - box.top - box.height / 2) < 20;
      });
      if (to < 0 || to === now || cut[to]) return;
      [cut[now], cut[to]] = [false, true];
      now = to;
      draw();
    };
    const done = () => {
      removeEventListener("pointermove", moved);
      removeEventListener("pointerup", done);
      removeEventListener("pointercancel", done);
      // The press of a button that was dragged away, and back, is none.
      if (now !== at) gaps[now].addEventListener("click", (click) => click.stopImmediatePropagation(),
                                                 {capture: true, once: true});
    };
    addEventListener("pointermove", moved);
    addEventListener("pointerup", done);
    addEventListener("pointercancel", done);
  }

  function draw() {
    const parts = pieces(cut), groups = parts.flatMap((part) => kernels(data, part));
    const bytes = parts.flatMap(([first, last]) => data.segments[`${first} ${last}`].kernels)
      .reduce((sum, kernel) => sum + kernel.bytes, 0);
    const count = parts.reduce((sum, [first, last]) =>
      sum + data.segments[`${first} ${last}`].kernels.length, 0);
    const most = data.lines.reduce((sum, _, at) => sum + data.segments[`${at} ${at}`].kernels[0].bytes, 0);
    cut.forEach((is, at) => {
      const forced = !is && groups.some(([, last]) => last === at);
      gaps[at].textContent = is ? "your boundary" : forced ? "still a boundary" : "together";
      gaps[at].setAttribute("aria-pressed", is);
      gaps[at].setAttribute("aria-label", `${gaps[at].textContent}, between ${data.lines[at].makes} and ` +
        `${data.lines[at + 1].makes}${forced ? ": the scheduler keeps them apart" : ""}`);
      gaps[at].classList.toggle("forced", forced);
    });
    [...program.children].forEach((line, at) => {
      const number = groups.findIndex(([first, last]) => first <= at && at <= last);
      line.className = `tone-line-${number % 6}`;
      line.querySelector(".live-number").textContent = number + 1;
    });
    bar.replaceChildren(...[["moved", bytes], ["no schedule can do with less than", data.least]].map(
      ([words, size]) => element("div", {}, element("i", {style: `width:${100 * size / most}%`}),
                                 element("span", {}, `${bytesText(size)} ${words}`))));
    why.replaceChildren(...parts.flatMap(([first, last]) => {
      const {together, apart, writes} = data.segments[`${first} ${last}`];
      const names = named([first, last]);
      return [...apart.map((reason) => [`${names} are not one kernel`, reason]),
              ...together.map((reason, place) => [
                kernels(data, [first, last]).length === together.length
                  ? named(kernels(data, [first, last])[place]) : names,
                reason.replace("fused: ", "")]),
              ...(last < cut.length ? [[`behind ${data.lines[last].makes}`,
                "your boundary; written to memory, and read again: " +
                writes.map((name) => `${name} (${bytesText(data.sizes[name])})`).join(", ")]]
                : [])].map(
        ([who, reason]) => element("li", {}, element("b", {}, who), `: ${reason}`));
    }));
    told.textContent = `${counted(count, "kernel")}, ${bytesText(bytes)} moved.`;
  }

  const set = (cuts) => () => {
    cut.forEach((_, at) => { cut[at] = cuts(at); });
    draw();
  };
  data.lines.forEach(({makes, words}, at) => program.append(element("li", {},
    element("span", {class: "live-number"}), element("code", {}, `${makes} = ${words}`),
    at < gaps.length ? gaps[at] : null)));
  body.replaceChildren(
    element("p", {class: "live-buttons"}, button("Each line alone", set(() => true)),
            button("No boundary of mine", set(() => false))),
    program, told, bar, why);
  draw();
});
