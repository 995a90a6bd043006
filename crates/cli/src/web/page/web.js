// The page: asks again and again what there is to see, shows it, and sends what is to be done.
import { ask, useToken } from "/ask.js";
import { bits, button, bytes, count, element, micros, node, percent, rate, say, span, table, whole } from "/show.js";
import { awaitCapture, awaitPlot, jobLists } from "/jobs.js";
import { showWalk } from "/walk.js";

let stack = null; // the one that is shown
let filter = "";
let isPaused = false;
let timer = 0;
let asked = 0; // the number of the newest question: what answers an older one is not shown
let told = 0;
let facts = null;

const show = (id, text) => {
  say(node(id), text);
  node(id).hidden = text === "";
};

/** Without the token there is nothing to see. */
const closed = (refused) => {
  if (refused.status !== 401) return;
  node("token-form").hidden = false;
  node("main").hidden = true;
};

/** Says how something went, for a while. */
const tell = (id, text) => {
  clearTimeout(told);
  for (const other of ["refused", "done"]) show(other, other === id ? text : "");
  told = setTimeout(() => tell("", ""), 15000);
};

/** Does what was asked for. */
const act = async (what) => {
  try {
    const answer = await what();
    tell("done", (answer && answer.done) || "");
    look();
  } catch (refused) {
    tell("refused", refused.message);
    closed(refused);
  }
};

const change = (what) => act(async () => {
  const done = await ask("change", { stack, change: what });
  await learn();
  return done;
});

// What is live.
const bar = (cell) => {
  const inside = element("i", element("span", cell, { className: "bar" }), {});
  const text = element("span", cell, {});
  return (row) => {
    inside.style.width = (row.busy_percent || 0) + "%";
    say(text, percent(row.busy_percent));
  };
};
const full = (channel) => (channel.slots > 0 ? whole(channel.depth) + " of " + whole(channel.slots) : whole(channel.depth));
const connection = (row) => row.protocol + " " + row.local + " " + (row.remote || "");
const plotButton = (cell, first) => {
  let row = first;
  const made = button(cell, "plot", "Plot", "Plot " + connection(first), () => act(async () => {
    const seconds = node("plot-seconds");
    if (!seconds.reportValidity()) return;
    const { id } = await ask("plot", { stack, local: row.local, remote: row.remote, seconds: Number(seconds.value) });
    awaitPlot(id);
  }));
  return (newer) => {
    row = newer;
    made.hidden = row.protocol !== "tcp" || !row.remote || row.state === "TIME-WAIT";
  };
};
const shows = {
  cores: table("cores", [{ title: "Core", text: (row) => String(row.number) }, { title: "Busy", build: bar }], (row) => row.number, "Not known."),
  threads: table("threads", [
    { title: "Thread", text: (row) => row.name }, { title: "For", text: (row) => row.role }, { title: "CPU", text: (row) => percent(row.cpu_percent), right: true },
    { title: "Core", text: (row) => whole(row.core), right: true }, { title: "Does", text: (row) => (row.state === "stuck" ? "stuck: " : "") + row.does, mark: (row) => row.state === "stuck" },
  ], (row) => row.name, "No threads of its own."),
  channels: table("channels", [
    { title: "Channel", text: (row) => row.name }, { title: "Packets", text: full, right: true },
    { title: "Lost", text: (row) => whole(row.drops), right: true, mark: (row) => row.drops > 0 }, { title: "", text: (row) => rate(row.drops_per_s), right: true },
  ], (row) => row.name, "Links call shards."),
  drops: table("drops", [
    { title: "Why", text: (row) => row.reason }, { title: "Where", text: (row) => row.where }, { title: "Packets", text: (row) => whole(row.packets), right: true },
    { title: "", text: (row) => rate(row.per_s), right: true, mark: (row) => row.per_s > 0 }, { title: "What", text: (row) => row.meaning, wrap: true },
  ], (row) => row.reason, "Nothing was dropped."),
  connections: table("connections", [
    { title: "", build: plotButton }, { title: "Protocol", text: (row) => row.protocol }, { title: "State", text: (row) => row.state },
    { title: "Local", text: (row) => row.local }, { title: "Remote", text: (row) => row.remote || "" },
    { title: "In", text: (row) => bits(row.in_bits_per_s), right: true }, { title: "Out", text: (row) => bits(row.out_bits_per_s), right: true },
    { title: "RTT", text: (row) => micros(row.rtt_us), right: true }, { title: "cwnd", text: (row) => bytes(row.cwnd_bytes), right: true },
    { title: "Resent", text: (row) => whole(row.retransmits), right: true }, { title: "", text: (row) => rate(row.retransmits_per_s), right: true, mark: (row) => row.retransmits_per_s > 0 },
    { title: "Recv-Q", text: (row) => count(row.receive_queue), right: true }, { title: "Send-Q", text: (row) => count(row.send_queue), right: true },
    { title: "Process", text: (row) => row.process || "" },
  ], connection, "None."),
  taps: table("taps", [
    { title: "Tap", text: (row) => String(row.tap), right: true }, { title: "Link", text: (row) => String(row.link) }, { title: "Way", text: (row) => String(row.way) },
    { title: "Bytes of each", text: (row) => whole(row.snap_bytes), right: true }, { title: "Seen", text: (row) => whole(row.seen), right: true },
    { title: "Matched", text: (row) => whole(row.matched), right: true }, { title: "Taken", text: (row) => whole(row.taken), right: true },
    { title: "Lost", text: (row) => whole(row.dropped_ring_full + row.dropped_no_buffer), right: true, mark: (row) => row.dropped_ring_full + row.dropped_no_buffer > 0 },
  ], (row) => row.tap, "None."),
};
const jobs = jobLists(act);

/** The choices of a select, which keeps its choice where it can. */
const options = (select, all) => {
  if (JSON.stringify(all) === select.dataset.all) return;
  const chosen = select.value;
  select.dataset.all = JSON.stringify(all);
  select.replaceChildren();
  for (const [value, text] of all) element("option", select, { value, textContent: text });
  if (all.some(([value]) => value === chosen)) select.value = chosen;
};

const showModel = (seen) => {
  const { model, walk } = seen;
  const received = bits(model.received.bits_per_s), sent = bits(model.sent.bits_per_s);
  say(node("about"), `${model.regime}, up ${span(model.up_s)}, CPU ${percent(model.cpu_percent)}, in ${received}, out ${sent}`);
  document.title = model.process + " - netchan";
  const where = new Map(walk.arrows.flatMap((arrow) => arrow.reasons.map((reason) => [reason, arrow.from + " → " + arrow.to])));
  shows.cores(model.cores);
  shows.threads(model.threads);
  shows.channels(model.channels);
  shows.drops(model.drops.map((row) => ({ ...row, where: where.get(row.reason) || "" })));
  shows.connections(seen.connections);
  shows.taps(seen.taps);
  const more = seen.chosen > seen.connections.length ? `, the first ${seen.connections.length} of them here` : "";
  const omitted = model.omitted > 0 ? `, ${whole(model.omitted)} more were not told` : "";
  say(node("counts"), `${whole(seen.chosen)} chosen${more} of ${whole(seen.sockets)} sockets${omitted}; ${whole(seen.listening)} listen.`);
  showWalk(walk, seen.links, seen.sockets);
  options(node("capture-link"), [["", "all"], ...seen.links.map((name) => [name, name])]);
};

const showLive = (seen) => {
  options(node("stack"), seen.stacks.length > 0 ? seen.stacks.map((row) => [row.stack, `${row.process} (${row.stack})`]) : [["", "none"]]);
  const isNew = seen.stack !== stack;
  stack = seen.stack;
  if (stack !== null) node("stack").value = stack;
  jobs(seen.jobs);
  const missing = seen.model ? seen.model.missing.join("; ") : "";
  const late = seen.age_s === null ? "" : `, last answer ${span(Math.round(seen.age_s))} ago`;
  show("trouble", stack === null ? "No netchan stack of yours is running. Start one with: netchan run -- COMMAND" : seen.trouble ? seen.trouble + late : missing);
  if (seen.model) showModel(seen);
  if (isNew && stack !== null) learn().catch((refused) => tell("refused", refused.message));
};

/** Asks once, and again after the pace. While it is paused, only how far captures and plots are. */
const look = async () => {
  clearTimeout(timer);
  const number = ++asked;
  try {
    const seen = isPaused ? await ask("jobs", {})
      : await ask("live", { stack, filter, order: node("order").value, reversed: node("reversed").checked });
    if (number !== asked) return;
    node("token-form").hidden = true;
    node("main").hidden = false;
    if (isPaused) jobs(seen.jobs); else showLive(seen);
  } catch (refused) {
    if (number !== asked) return;
    // Its stack has ended: another one may run.
    if (refused.status === 404) stack = null;
    show("trouble", refused.message);
    closed(refused);
  }
  timer = setTimeout(look, Number(node("pace").value));
};

// What changes rarely.
const setting = (cell, first) => {
  let row = first;
  const isOpen = row.changes === "run";
  if (!isOpen) {
    const text = element("span", cell, {});
    return (newer) => say(text, String(newer.value));
  }
  const input = element("input", cell, { type: "text", maxLength: 200, spellcheck: false });
  input.dataset.control = "setting";
  input.setAttribute("aria-label", row.name);
  const set = () => change({ set: { name: row.name, value: input.value } });
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") set(); });
  button(cell, "setting-set", "Set", "Set " + row.name, set);
  let last = null;
  return (newer) => {
    row = newer;
    const value = String(newer.value);
    if (value !== last) input.value = value;
    last = value;
  };
};
const remover = (control, name, what) => ({
  title: "",
  build: (cell, first) => {
    let row = first;
    button(cell, control, "Remove", "Remove " + name(first), () => change(what(row)));
    return (newer) => { row = newer; };
  },
});
const gateway = (row) => (row.via === "on link" ? "" : row.via);
const rarely = {
  settings: table("settings", [
    { title: "Setting", text: (row) => row.name }, { title: "Value", build: setting }, { title: "Changes", text: (row) => (row.changes === "run" ? "now" : row.changes) },
    { title: "From", text: (row) => row.from || "" },
  ], (row) => row.name, "None."),
  addresses: table("addresses", [
    { title: "Link", text: (row) => row.link }, { title: "Address", text: (row) => row.address },
    remover("address-remove", (row) => row.address, (row) => ({ remove_address: { link: row.link, address: row.address } })),
  ], (row) => row.link + " " + row.address, "None."),
  routes: table("routes", [
    { title: "Network", text: (row) => row.network }, { title: "Via", text: (row) => row.via }, { title: "Link", text: (row) => row.link || "" },
    { title: "Mark", text: (row) => (row.mark > 0 ? String(row.mark) : "") },
    remover("route-remove", (row) => row.network, (row) => ({ remove_route: { link: row.link || "", to: row.network, mark: row.mark || 0 } })),
  ], (row) => [row.network, gateway(row), row.link, row.mark].join(" "), "None."),
  modules: table("modules", [
    { title: "Module", text: (row) => row.name }, { title: "Points", text: (row) => row.points }, { title: "Seen", text: (row) => whole(row.seen_packets), right: true },
    { title: "Dropped", text: (row) => whole(row.dropped_packets), right: true }, { title: "State", text: (row) => row.state, mark: (row) => row.state !== "good" },
    { title: "Says", text: (row) => String(row.says), wrap: true },
    remover("module-unload", (row) => row.name, (row) => ({ unload_module: { name: row.name } })),
  ], (row) => row.name, "None: netchan module load NAME loads one."),
};

const showFacts = () => {
  if (!facts) return;
  const isOpen = (row) => row.changes === "run" || row.name === "regime" || !node("settings-run").checked;
  rarely.settings(facts.settings.filter(isOpen));
  rarely.addresses(facts.addresses);
  rarely.routes(facts.routes);
  rarely.modules(facts.modules);
  const links = facts.links.filter((row) => typeof row.name === "string").map((row) => [row.name, row.name]);
  options(node("address-link"), links);
  options(node("route-link"), [["", "any"], ...links]);
};

/** Asks for it. */
const learn = async () => {
  const of = stack;
  const learned = await ask("facts", { stack: of });
  if (of !== stack) return;
  facts = learned;
  showFacts();
};

// What can be done.
const on = (id, event, what) => node(id).addEventListener(event, what);
const submitted = (id, what) => on(id, "submit", (event) => {
  event.preventDefault();
  what();
});
on("stack", "change", () => {
  stack = node("stack").value || null;
  act(learn);
});
on("pace", "change", look);
on("pause", "click", () => {
  isPaused = !isPaused;
  node("pause").setAttribute("aria-pressed", String(isPaused));
  say(node("pause"), isPaused ? "Go on" : "Pause");
  look();
});
submitted("token-form", () => {
  useToken(node("token").value.trim());
  node("token").value = "";
  show("trouble", "");
  look();
});
submitted("filter-form", () => {
  filter = node("filter").value;
  look();
});
on("order", "change", look);
on("reversed", "change", look);
submitted("capture-form", () => act(async () => {
  const text = (id) => node(id).value.trim();
  const { id } = await ask("capture", {
    stack, link: text("capture-link") || null, way: text("capture-way") || null, filter: text("capture-filter"), snap: text("capture-snap") ? Number(text("capture-snap")) : null,
    frames: Number(text("capture-frames")), seconds: Number(text("capture-seconds")), mib: Number(text("capture-mib")),
  });
  awaitCapture(id);
}));
on("settings-run", "change", showFacts);
on("refresh", "click", () => act(learn));
submitted("address-form", () => change({ add_address: { link: node("address-link").value, address: node("address").value.trim() } }));
submitted("route-form", () => change({
  add_route: { link: node("route-link").value, to: node("route").value.trim(), gateway: node("route-via").value.trim() || null, mark: 0 },
}));
look();
