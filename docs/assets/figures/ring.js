// Collectives round by round: who sends which part to whom, and what each device has then.

import {button, counted, element, figures, said, shape} from "./elements.js";

const WIDTH = 470, HEIGHT = 284, CELL = 44, BOX = 4 * CELL + 6;
const PLACES = [[4, 24], [280, 24], [280, 190], [4, 190]];  // around, as a ring goes
const LETTERS = "abcd";

/** Each device begins with nothing but what it is given: a part is the set of those added up. */
const begin = (count) => Array.from({length: count}, () => Array.from({length: count}, () => []));

/** What devices have after a round. Every move reads what was there before it. */
function after(state, moves) {
  const next = state.map((parts) => parts.map((part) => [...part]));
  for (const {sender, receiver, start, stop, combined, given} of moves)
    for (let part = start; part < stop; part++) {
      const sent = given ? [sender] : state[sender][part];
      next[receiver][part] = combined ? [...next[receiver][part], ...sent] : [...sent];
    }
  return next;
}

figures("ring", (body, data) => {
  const told = said(), list = element("ul", {class: "live-reasons"});
  const drawing = shape("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "live-ring"});
  const step = element("input", {type: "range", min: 0, value: 0, "aria-label": "Round",
                                 oninput: () => { round = Number(step.value); draw(); }});
  const choices = Object.keys(data.algorithms).map((name) =>
    button(name, () => { algorithm = name; round = 0; draw(); }));
  let algorithm = "ring", round = 0;

  function draw() {
    const rounds = data.algorithms[algorithm], first = rounds[0].filter(({sender, receiver}) => sender === receiver);
    const states = [after(begin(data.count), first)];
    rounds.slice(1).forEach((moves) => states.push(after(states.at(-1), moves)));
    const moves = round ? rounds[round] : [], state = states[round];
    const sent = rounds.slice(1, round + 1).flat().filter(({sender, receiver}) => sender !== receiver);
    const parts = (all) => all.reduce((sum, {start, stop}) => sum + stop - start, 0);
    const busiest = Math.max(...PLACES.map((_, device) => parts(sent.filter(({sender}) => sender === device))));
    step.max = rounds.length - 1;
    step.value = round;
    step.setAttribute("aria-valuetext", `round ${round} of ${rounds.length - 1}`);
    choices.forEach((choice) => choice.setAttribute("aria-pressed", choice.textContent === algorithm));
    drawing.replaceChildren(marker(), ...moves.map(arrow), ...state.flatMap((each, device) => box(each, device, moves)));
    const done = state.every((each) => each.every((part) => part.length === data.count));
    drawing.setAttribute("aria-label", state.map((each, device) => `device ${device} has ` +
      each.map((part) => part.length ? sum(part) : "nothing").join(", ")).join("; "));
    told.textContent = `Round ${round} of ${rounds.length - 1}: ${counted(parts(sent), "part")} sent so far, ` +
      `${busiest} by the busiest device.${done ? " All devices have all sums." : ""}`;
    list.replaceChildren(...moves.map(({sender, receiver, start, stop, combined}) => element("li", {},
      `device ${sender} sends ${stop - start === 1 ? `part ${start}` : `parts ${start} to ${stop - 1}`} to device ` +
      `${receiver}, which ${combined ? "adds it" : "keeps it"}`)));
  }

  const sum = (part) => [...part].sort().map((device) => LETTERS[device]).join("+");

  const marker = () => shape("defs", {}, shape("marker", {id: "ring-tip", viewBox: "0 0 10 10", refX: 9, refY: 5,
    markerWidth: 7, markerHeight: 7, orient: "auto"}, shape("path", {d: "M0 1 10 5 0 9Z", class: "live-tip"})));

  function arrow({sender, receiver, combined}, place) {
    const [[x, y], [toX, toY]] = [PLACES[sender], PLACES[receiver]].map(([x, y]) => [x + BOX / 2, y + 32]);
    const long = Math.hypot(toX - x, toY - y), [wide, high] = [(toX - x) / long, (toY - y) / long];
    const side = 8 + 3 * (place % 2), gap = Math.abs(wide) > .5 ? BOX / 2 + 4 : 38;
    const from = [x + wide * gap - high * side, y + high * gap + wide * side];
    const to = [toX - wide * gap - high * side, toY - high * gap + wide * side];
    return shape("path", {d: `M${from}L${to}`, class: `edge${combined ? "" : " roof-cache"}`, "marker-end": "url(#ring-tip)"});
  }

  function box(parts, device, moves) {
    const [x, y] = PLACES[device];
    const changed = moves.filter(({receiver}) => receiver === device);
    return [shape("text", {x, y: y < HEIGHT / 2 ? y - 7 : y + 80}, `device ${device}, given ${LETTERS[device]}`), ...parts.flatMap((part, number) => {
      const now = changed.some(({start, stop}) => start <= number && number < stop);
      const across = x + number * (CELL + 2);
      return [shape("rect", {x: across, y, width: CELL, height: 64, rx: 3,
                             class: part.length === data.count ? "tone tone-2" : now ? "tone tone-1"
                               : part.length ? "tone tone-0" : "frame"}),
              ...part.toSorted().map((each, line) => shape("text", {x: across + CELL / 2, y: y + 15 + 14 * line,
                class: "name", "text-anchor": "middle"}, (line ? "+" : "") + LETTERS[each] + number))];
    })];
  }

  const go = (by) => () => {
    round = Math.min(Math.max(round + by, 0), data.algorithms[algorithm].length - 1);
    draw();
  };
  body.replaceChildren(element("p", {class: "live-buttons"}, ...choices),
    element("p", {class: "live-buttons"}, button("Back", go(-1)), button("Next round", go(1)), step),
    element("div", {class: "live-wide"}, drawing), told, list);
  draw();
});
