// Captures and plots: their lists, and what is done with them.
import { ask, save } from "/ask.js";
import { button, bytes, node, table, whole } from "/show.js";

const saved = new Set(); // captures that were begun here, and are saved when they end
let awaited = null; // the plot that is shown when it ends

/** A capture that was begun here. */
export const awaitCapture = (id) => saved.add(id);
/** A plot that was begun here. */
export const awaitPlot = (id) => { awaited = id; };

const fileOf = (job) => `netchan-${job.stack}-${job.id}.` + (job.kind === "capture" ? "pcapng" : "html");

/** Shows the plot `id`, or none. */
const showPlot = (id) => {
  const place = node("plot");
  place.replaceChildren();
  if (id === null) return;
  const frame = Object.assign(document.createElement("iframe"), { src: "/plot#" + id, title: "Time-sequence of a connection" });
  place.appendChild(frame);
  // As high as what is in it.
  const fit = () => {
    if (!frame.isConnected) return;
    const inside = frame.contentDocument && frame.contentDocument.body;
    if (inside) frame.style.height = inside.offsetHeight + 24 + "px";
    setTimeout(fit, 500);
  };
  frame.addEventListener("load", fit);
};

const state = (job) => (job.is_running ? "runs" : job.error || "done");

/** The lists; `act` does what is asked and says what is wrong. */
export const jobLists = (act) => {
  let shownPlot = null;
  const actions = (cell, first) => {
    let job = first;
    const named = job.kind + " " + job.id;
    const stop = button(cell, job.kind + "-stop", "Stop", "Stop " + named, () => act(() => ask("stop", { id: job.id })));
    const show = job.kind === "plot" ? button(cell, "plot-show", "Show", "Show " + named, () => { shownPlot = job.id; showPlot(job.id); }) : null;
    const keep = button(cell, job.kind + "-save", "Save", "Save " + named, () => act(() => save("file", { id: job.id }, fileOf(job))));
    const forget = button(cell, job.kind + "-forget", "Remove", "Remove " + named, () => act(async () => {
      await ask("forget", { id: job.id });
      if (shownPlot === job.id) showPlot(null);
    }));
    return (newer) => {
      job = newer;
      stop.hidden = !job.is_running;
      forget.hidden = job.is_running;
      keep.hidden = !job.has_result;
      if (show) show.hidden = !job.has_result;
    };
  };
  const mark = (job) => job.error !== null;
  const what = { title: "What", text: (job) => job.about };
  const how = { title: "State", text: (job) => state(job) + (job.note ? "; " + job.note : ""), wrap: true, mark };
  const end = { title: "", build: actions };
  const of = { title: "Stack", text: (job) => job.stack };
  const captures = table("captures", [
    { title: "No.", text: (job) => String(job.id), right: true }, of, what,
    { title: "Frames", text: (job) => whole(job.frames), right: true }, { title: "Size", text: (job) => bytes(job.bytes), right: true }, how, end,
  ], (job) => job.id, "No captures.");
  const plots = table("plots", [{ title: "No.", text: (job) => String(job.id), right: true }, of, what, how, end], (job) => job.id, "Choose a connection above.");
  return (jobs) => {
    captures(jobs.filter((job) => job.kind === "capture"));
    plots(jobs.filter((job) => job.kind === "plot"));
    for (const job of jobs) {
      if (job.is_running) continue;
      if (saved.delete(job.id) && job.has_result) act(() => save("file", { id: job.id }, fileOf(job)));
      if (awaited === job.id) {
        awaited = null;
        if (job.has_result) { shownPlot = job.id; showPlot(job.id); }
      }
    }
  };
};
