package main

var pageFlows = []flow{
	{name: "old-links", clause: "old links find their page", do: oldLinks},
}

// leave takes the focus away from a field, as if nothing had been typed: a key that a page has
// taken for itself is typed by the browser's remote control all the same.
func (p *page) leave() error {
	return p.tab.Run(p, `{ const e = document.activeElement; e.value = e.defaultValue; e.blur(); }`)
}

func oldLinks(p *page) error {
	return steps(p.to("/#/instances"), p.at("/instances"), p.to("/instances#/permission-groups"),
		p.at("/permission-groups"))
}
