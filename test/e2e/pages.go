package main

var pageFlows = []flow{
	{name: "old-links", clause: "old links find their page", do: oldLinks},
}

// leave takes the focus away from a field.
func (p *page) leave() error { return p.tab.Run(p, `document.activeElement.blur()`) }

func oldLinks(p *page) error {
	return steps(p.to("/#/instances"), p.at("/instances"), p.to("/instances#/permission-groups"),
		p.at("/permission-groups"))
}
