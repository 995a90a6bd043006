// Questions to the server. Each is a POST of JSON with a header that no other site's page can send.
const KEY = "netchan-token";

// The token stands behind # in the address that `netchan web` prints. It is taken from there, so that it stays in no history.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

/** Why there is no answer. */
export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

/** Sends `token` from now on. */
export const useToken = (token) => sessionStorage.setItem(KEY, token);

const post = async (name, body) => {
  const headers = { "Content-Type": "application/json", "X-Netchan": "1" };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = "Bearer " + token;
  let response;
  try {
    response = await fetch("/api/" + name, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refused(0, "no answer: has netchan web ended?");
  }
  if (response.ok) return response;
  const why = await response.json().then((answer) => answer.error, () => "status " + response.status);
  throw new Refused(response.status, why);
};

/** The answer's object. */
export const ask = async (name, body) => (await post(name, body)).json();

/** The answer's text. */
export const askText = async (name, body) => (await post(name, body)).text();

/** Keeps the answer as a file. */
export const save = async (name, body, file) => {
  const blob = await (await post(name, body)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};
