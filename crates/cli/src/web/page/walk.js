// A packet's walk as a picture: stations as boxes, arrows with packets a second and what is lost on them. It lies on wide screens and stands on narrow ones.
import { bits, count, node, rate, say, whole } from "/show.js";

const SVG = "http://www.w3.org/2000/svg";
const draw = (name, parent, properties) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  return parent.appendChild(made);
};

// Boxes are [x, y, width, height]. Arrows are [x, y, x, y] and where their label stands: from its anchor, above and below the line, or beside it.
const LYING = {
  view: [1000, 236],
  boxes: {
    link: [4, 14, 96, 208], steer: [216, 14, 114, 84], check: [216, 138, 114, 84], received: [446, 14, 114, 84], outgoing: [446, 138, 114, 84],
    shard: [676, 14, 96, 208], socket: [900, 14, 96, 208],
  },
  arrows: {
    "link steer": [100, 56, 216, 56], "steer channel": [330, 56, 446, 56], "channel shard": [560, 56, 676, 56], "shard socket": [772, 56, 900, 56],
    "steer check": [273, 98, 273, 138], "socket shard": [900, 180, 772, 180], "shard channel": [676, 180, 560, 180],
    "channel check": [446, 180, 330, 180], "check link": [216, 180, 100, 180],
  },
};
const STANDING = {
  view: [360, 500],
  boxes: {
    link: [4, 4, 352, 48], steer: [4, 126, 150, 48], check: [206, 126, 150, 48], received: [4, 248, 150, 48], outgoing: [206, 248, 150, 48],
    shard: [4, 370, 352, 40], socket: [4, 456, 352, 40],
  },
  arrows: {
    "link steer": [34, 52, 34, 126], "steer channel": [34, 174, 34, 248], "channel shard": [34, 296, 34, 370], "shard socket": [34, 410, 34, 456],
    "steer check": [154, 150, 206, 150], "socket shard": [236, 456, 236, 410], "shard channel": [236, 370, 236, 296],
    "channel check": [236, 248, 236, 174], "check link": [236, 126, 236, 52],
  },
};
const NAMES = { link: "Link", steer: "Steer", check: "Check", received: "Channel", outgoing: "Channel", shard: "Shard", socket: "Socket" };

const box = (svg, [x, y, width, height], name) => {
  draw("rect", svg, { x, y, width, height, rx: 8, class: "station" });
  const middle = { x: x + width / 2, "text-anchor": "middle" };
  draw("text", svg, { ...middle, y: y + height / 2 - 3, class: "name" }).textContent = name;
  return draw("text", svg, { ...middle, y: y + height / 2 + 14, class: "more" });
};

const arrow = (svg, [x1, y1, x2, y2]) => {
  const [dx, dy] = [Math.sign(x2 - x1), Math.sign(y2 - y1)];
  const group = draw("g", svg, { class: "arrow" });
  const line = draw("line", group, { x1: x1 + 3 * dx, y1: y1 + 3 * dy, x2: x2 - 10 * dx, y2: y2 - 10 * dy });
  const [bx, by] = [x2 - 11 * dx, y2 - 11 * dy];
  draw("path", group, { d: `M${x2 - 2 * dx} ${y2 - 2 * dy}L${bx + 6 * dy} ${by + 6 * dx}L${bx - 6 * dy} ${by - 6 * dx}Z` });
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const isFlat = dy === 0;
  // A short upright arrow has room for one line beside it.
  const isShort = Math.abs(x2 - x1) + Math.abs(y2 - y1) < 60;
  const at = (px, py, kind) => draw("text", group, { x: px, y: py, "text-anchor": isFlat ? "middle" : "start", class: kind });
  const texts = isFlat
    ? { rate: at(mx, my - 9, "rate"), bits: at(mx, my - 25, "bits"), lost: at(mx, my + 19, "lost") }
    : isShort
      ? { rate: at(mx + 12, my - 3, "rate"), bits: at(mx + 12, my + 12, "bits"), lost: at(mx + 12, my + 12, "lost") }
      : { rate: at(mx + 12, my - 4, "rate"), bits: at(mx + 12, my - 19, "bits"), lost: at(mx + 12, my + 11, "lost") };
  return { group, line, ...texts };
};

let built = null;
const build = (isNarrow) => {
  const layout = isNarrow ? STANDING : LYING;
  const svg = node("walk");
  svg.replaceChildren();
  svg.setAttribute("viewBox", "0 0 " + layout.view.join(" "));
  const arrows = {}, more = {};
  for (const [name, place] of Object.entries(layout.arrows)) arrows[name] = arrow(svg, place);
  for (const [name, place] of Object.entries(layout.boxes)) more[name] = box(svg, place, NAMES[name]);
  built = { isNarrow, arrows, more };
};

const lost = (arrow) => (arrow.drops_per_s > 0 ? rate(arrow.drops_per_s) + " lost" : arrow.drops > 0 ? count(arrow.drops) + " lost" : "0 lost");
const waiting = (depth) => (depth.channels === 0 ? "handed by calls" : whole(depth.packets) + " of " + whole(depth.slots) + (depth.are_backlogs ? " left" : ""));

/** Shows it: of `links` and so many `sockets`. */
export const showWalk = (walk, links, sockets) => {
  const isNarrow = node("walk").clientWidth < 900;
  if (!built || built.isNarrow !== isNarrow) build(isNarrow);
  const { arrows, more } = built;
  for (const arrow of walk.arrows) {
    const shown = arrows[arrow.from + " " + arrow.to];
    if (!shown) continue;
    const isForward = arrow.from === "steer" && arrow.to === "check";
    const isCounted = arrow.from !== "socket"; // programs write bytes, not packets
    say(shown.rate, isCounted ? rate(arrow.packets_per_s) : bits(arrow.bits_per_s));
    say(shown.bits, isForward ? "forwarded" : isCounted && arrow.bits_per_s !== null && !(isNarrow && arrow.to === "socket") ? bits(arrow.bits_per_s) : "");
    say(shown.lost, isForward || !isCounted ? "" : lost(arrow));
    shown.line.setAttribute("stroke-width", (1.5 + Math.min(4.5, Math.log10(1 + (arrow.packets_per_s || 0)))).toFixed(1));
    shown.group.classList.toggle("busy", (arrow.packets_per_s || arrow.bits_per_s || 0) > 0);
    shown.group.classList.toggle("losing", arrow.drops_per_s > 0);
    shown.group.classList.toggle("lossy", arrow.drops > 0);
  }
  const beside = walk.arrows.find((arrow) => arrow.to === "host");
  say(more.link, links.length === 1 ? links[0] : links.length + " links");
  say(more.steer, "ARP, ICMP " + rate(beside && beside.packets_per_s));
  say(more.check, "route, next hop");
  say(more.received, waiting(walk.received));
  say(more.outgoing, walk.outgoing.channels === 0 ? "called" : waiting(walk.outgoing));
  say(more.shard, "resent " + rate(walk.retransmits_per_s));
  say(more.socket, whole(sockets));
};
