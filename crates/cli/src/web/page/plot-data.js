// Fetches the data of the plot whose number stands behind # in the address, then lets the plot's own script draw it.
import { askText } from "/ask.js";

try {
  const id = Number(location.hash.slice(1));
  document.getElementById("data").textContent = await askText("data", { id });
  document.body.appendChild(Object.assign(document.createElement("script"), { src: "/plot.js" }));
} catch (refused) {
  document.getElementById("title").textContent = refused.message;
}
