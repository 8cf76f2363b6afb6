package main

import (
	"fmt"
	"os/exec"
	"strings"
)

// toLab opens a page of the lab.
func (p *page) toLab(path string) func() error {
	return func() error { return p.tab.Navigate(p, p.lab.Controller+path) }
}

// script runs JavaScript on the page, as a person's hand would do what it does.
func (p *page) script(text string) func() error {
	return func() error { return p.tab.Run(p, "{"+text+"}") }
}

// refresh refreshes the page as a change does, and waits until that is done.
func (p *page) refresh() error {
	return steps(p.script(`window.refreshed = false;
		document.addEventListener("htmx:after:swap", () => { window.refreshed = true; }, { once: true });
		htmx.trigger(document.body, "changed")`), p.holds("window.refreshed"))
}

// press presses a key, such as "Ctrl-k". Unlike keys it types no character where the page uses the key itself.
func (p *page) press(key string) func() error {
	name, isCtrl := strings.CutPrefix(key, "Ctrl-")
	return p.script(fmt.Sprintf(`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", `+
		`{ key: %q, ctrlKey: %t, bubbles: true, cancelable: true }))`, name, isCtrl))
}

// choose takes an option of a list.
func (p *page) choose(selector, value string) func() error {
	return func() error {
		if err := p.there(selector)(); err != nil {
			return err
		}
		return p.script(
			fmt.Sprintf(
				`const e = document.querySelector(%q); e.value = %q; for (const t of ["input", "change"]) e.dispatchEvent(new Event(t, {bubbles: true}))`, selector, value))()
	}
}

// hold waits until something of the cloud is so.
func (p *page) hold(what string, is func() (bool, error)) func() error {
	return func() error { return p.await(p, what, is) }
}

// reload loads the page once more.
func (p *page) reload() error { return p.tab.Reload(p) }

// back goes where the browser was before.
func (p *page) back() error { return p.tab.Back(p) }

// text evaluates a JavaScript expression, or the promise of it, as a text.
func (p *page) text(expression string) (string, error) {
	return evaluate[string](p, expression)
}

// runs passes a command of the page to a shell, like a user who copied it.
func (p *page) runs(selector string, texts ...string) func() error {
	return func() error {
		command, err := p.text(fmt.Sprintf(`document.querySelector(%q).dataset.command`, selector))
		if err != nil {
			return err
		}
		return p.shell(command, texts...)
	}
}

// shell runs a command, whose output has to hold texts.
func (p *page) shell(command string, texts ...string) error {
	out, err := exec.CommandContext(p, "sh", "-c", command).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			return fmt.Errorf("%s does not say %q: %.500s", command, text, out)
		}
	}
	return nil
}

// still makes the browser ask for little motion.
func (p *page) still() error { return p.tab.Media(p, "prefers-reduced-motion", "reduce") }

// noScript makes the browser one that runs no script of pages.
func (p *page) noScript() error {
	p.scriptless = true
	return p.scripts(false)
}

// scripts lets scripts run, or not. Those of a page that was opened without them stay away.
func (p *page) scripts(run bool) error {
	return p.tab.Scripts(p, run)
}

// unmoved checks that nothing on the page has been pushed aside by what came later. Firefox does not count that.
func (p *page) unmoved() error {
	far, err := p.text(
		`new Promise(done => { let far = 0; if (!PerformanceObserver.supportedEntryTypes.includes("layout-shift")) done(""); else new PerformanceObserver(l => { for (const e of l.getEntries()) if (!e.hadRecentInput) far += e.value; }).observe({type: "layout-shift", buffered: true}); setTimeout(() => done(far <= 0.02 ? "" : String(far)), 300); })`)
	if err == nil && far != "" {
		err = fmt.Errorf("the page has moved by %s", far)
	}
	return err
}

// enter logs in to the guarded cloud as the root user.
func (p *page) enter() error {
	return steps(p.toGuarded("/login?return=%2Fhealth"), p.fill(`input[name="token"]`, rootToken), p.keys("\r"),
		p.at("/health"))
}

// visitsServices lets the flow visit the identity provider and the untrusted site.
func (p *page) visitsServices() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visits = true
	return nil
}
