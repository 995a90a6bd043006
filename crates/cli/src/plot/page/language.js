// Some browsers name the language of the C locale in a way that their own number formats refuse, and uPlot asks for one.
try { new Intl.NumberFormat(navigator.language); } catch { Object.defineProperty(navigator, "language", { value: "en-US" }); }
