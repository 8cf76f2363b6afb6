package main

var templateFlows = []flow{
	{name: "templates-list", clause: "templates: the list, its filter and order", do: listTemplates},
	{
		name:   "template-distribute",
		clause: "template: tags with size and increment, who holds them, distribute with progress",
		do:     distributeTemplate,
	},
	{name: "template-revert", clause: "template: a preview of what a revert takes away", do: revertTemplate},
}

func listTemplates(p *page) error {
	return steps(
		p.to("/templates"), p.live(), p.see("1 template", "guest", "v1"), p.picture("all"),
		p.click(`th a[href*="sort="]`), p.there(`th[aria-sort]`), p.to("/templates?q=name:nobody"),
		p.see("No matching templates"), p.picture("none"),
	)
}

func distributeTemplate(p *page) error {
	return steps(
		p.to("/templates/"+p.template), p.live(), p.see("guest", "v1", "Increment", "not scanned"), p.picture("one"),
		p.click(`a[href$="/distribute"]`), p.there("dialog[open] form"), p.picture("asked"),
		p.click("dialog[open] .acts button"),
		p.see("100 %", "work-0001"), p.picture("done"),
		p.to("/templates/"+p.template), p.see("3 nodes"),
	)
}

func revertTemplate(p *page) error {
	id, err := p.lab.push(p, p.name(), "v1", "v2")
	if err != nil {
		return err
	}
	return steps(
		p.toLab("/templates/"+id), p.live(), p.holds(`document.querySelectorAll("a[href*='/revert']").length === 1`),
		p.click(`a[href$="/revert?tag=v2"]`), p.there("dialog[open] form"), p.see("v1", "v2", "Space to be freed"),
		p.picture("preview"), p.click("dialog[open] [data-close]"), p.closed,
		func() error { return p.lab.registry.DeleteTemplate(p, id) },
	)
}
