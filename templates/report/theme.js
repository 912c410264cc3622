// The theme: the system's until the button says otherwise.
(() => {
  const root = document.documentElement, button = document.querySelector("button.theme");
  const themes = ["system", "light", "dark"];
  const show = (theme) => {
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = "system";
  try { theme = themes.find((each) => each === localStorage.getItem("autofn-theme")) || theme; } catch { /* a file's page may have no storage */ }
  show(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    try { localStorage.setItem("autofn-theme", theme); } catch { /* as above */ }
  });
})();
