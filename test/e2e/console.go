package main

import (
	"github.com/buildyard/buildyard/client"
)

var consoleFlows = []flow{
	{
		name:   "console",
		clause: "console: VNC of a running instance, typed into, with its password, ends with the instance",
		do:     useConsole,
	},
	{
		name: "console-tools", clause: "console: full screen, and what the guest copied", do: useConsoleTools,
	},
}

// canvas is a JavaScript expression for a part of the displayed screen.
const canvas = `(() => { const c = document.querySelector("#screen canvas"); return c && c.width ? c.toDataURL().length + c.toDataURL().slice(-2000) : ""; })()`

func useConsole(p *page) error {
	name := p.name()
	ids, err := p.start(p, name, 1)
	if err != nil {
		return err
	}
	locked, err := p.api.Start(p,
		client.StartRequest{TemplateID: p.template, Name: name + "-locked", VNCPassword: "sesame"})
	if err != nil {
		return err
	}
	connected := p.there(`#console-is[data-is="on"]`)
	return steps(
		p.to("/instances/"+ids[0]), p.live(), p.click(`a[href$="/console"]`), p.at("/instances/"+ids[0]+"/console"),
		connected,
		p.holds(`document.querySelector("#screen canvas").width === 480`),
		p.holds(`document.activeElement.tagName === "CANVAS"`),
		p.changes("typed", func() error { return p.keys("hello from a browser")() }), p.picture("typed"),
		p.changes("Ctrl-Alt-Del", p.click("#console-cad")),
		p.click("#console-paste"), p.fill("#paste-text", "pasted TEXT?"), p.picture("text"),
		p.changes("text", p.click("#paste button")),
		p.holds(`document.activeElement.tagName === "CANVAS"`), p.leaveScreen,
		p.holds(`document.activeElement.id === "console-again"`),
		p.click("#console-again"), connected,
		func() error { return p.api.Terminate(p, ids[0]) }, p.see("The instance is no longer running"),
		p.picture("ended"),
		p.click("#console-again"), p.holds(refusedConsole),
		p.comesUp(locked[0]), p.to("/instances/"+locked[0]+"/console"), p.see("requires its VNC password"),
		p.picture("password"),
		p.fill("#password-text", "wrong"), p.keys("\r"), p.see("refused the password"), p.click("#console-again"),
		p.see("requires its VNC password"), p.fill("#password-text", "sesame"), p.keys("\r"), connected,
		p.picture("unlocked"),
	)
}

// useConsoleTools copies a line that was entered: the clipboard of a simulated guest has the last one.
func useConsoleTools(p *page) error {
	ids, err := p.start(p, p.name(), 1)
	if err != nil {
		return err
	}
	canCopy := `!document.querySelector("#console-copy").disabled`
	return steps(
		p.to("/instances/"+ids[0]+"/console"), p.there(`#console-is[data-is="on"]`), p.holds("!("+canCopy+")"),
		p.script(`window.copies = []; const put = navigator.clipboard.writeText.bind(navigator.clipboard);
			navigator.clipboard.writeText = (text) => { window.copies.push(text); return put(text); }`),
		p.changes("typed", p.keys("of the guest")), p.keys("\r"), p.holds(canCopy), p.click("#console-copy"),
		p.see("Copied"), p.holds(`window.copies.join() === "of the guest"`), p.picture("copied"),
		p.click("#console-full"), p.holds(`document.fullscreenElement?.id === "screen"`),
		p.changes("typed", p.keys("on the full screen")), p.script("document.exitFullscreen()"),
		p.holds("!document.fullscreenElement"), p.there(`#console-is[data-is="on"]`),
	)
}

// refusedConsole is true when the page says why an instance that has ended has no console. The record of the
// instance stays for one second in these clouds, so that it may be gone.
const refusedConsole = `/^(Not found|The instance is Terminat(ing|ed); only an instance in the state Started has a console)$/
	.test(document.querySelector("#console-why").textContent.trim())`

// changes waits until the screen shows something else than before a step.
func (p *page) changes(what string, step func() error) func() error {
	return func() error {
		before, err := evaluate[string](p, canvas)
		if err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
		return p.await(p, "the screen to show what was "+what, func() (bool, error) {
			now, err := evaluate[string](p, canvas)
			return now != before && now != "", err
		})
	}
}

// leaveScreen presses the keys that the guest does not get.
func (p *page) leaveScreen() error {
	return p.tab.Run(p,
		`document.querySelector("#screen canvas").dispatchEvent(new KeyboardEvent("keydown", {code: "KeyB", key: "b", ctrlKey: true, altKey: true, bubbles: true, cancelable: true}))`)
}

// comesUp waits until an instance runs.
func (p *page) comesUp(id string) func() error {
	return func() error {
		return p.await(p, "the instance", func() (bool, error) {
			inst, err := p.api.Instance(p, id)
			return inst.InstanceState == "Started", err
		})
	}
}
