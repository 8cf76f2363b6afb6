package main

import "github.com/chromedp/chromedp"

var pageFlows = []flow{
	{"old-links", "old links find their page", oldLinks},
	{"log-in", "log-in by root token, and log-out", logIn},
}

// leave takes the focus away from a field, as if nothing had been typed: a key that a page has
// taken for itself is typed by the browser's remote control all the same.
func (p *page) leave() error {
	return chromedp.Do(p, chromedp.Evaluate[chromedp.Void](`{ const e = document.activeElement; e.value = e.defaultValue; e.blur(); }`))
}

func oldLinks(p *page) error {
	return steps(p.to("/#/instances"), p.at("/instances"), p.to("/instances#/permission-groups"), p.at("/permission-groups"))
}

func logIn(p *page) error {
	return steps(
		p.toGuarded("/instances"), p.at("/login?return=%2Finstances"), p.picture("asked"),
		p.refusal(403), p.fill(`input[name="token"]`, "not the token"), p.keys("\r"), p.there(`[role="alert"]`), p.picture("refused"),
		p.fill(`input[name="token"]`, rootToken), p.keys("\r"), p.at("/instances"), p.see("No instances yet"), p.picture("inside"),
		p.click(`form[action="/logout"] button`), p.at("/login"), p.toGuarded("/instances"), p.at("/login?return=%2Finstances"),
	)
}
