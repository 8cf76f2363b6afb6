package main

var dashboardFlows = []flow{
	{
		name: "dashboard", clause: "dashboard: what runs, waits and is stored, with charts over 1 h to 7 d",
		do: showDashboard,
	},
}

func showDashboard(p *page) error {
	if _, err := p.start(p, p.name(), 2); err != nil {
		return err
	}
	return steps(
		p.to("/"), p.live(), p.see("Active nodes", "Running instances", "Registry storage", "Waiting in queue"), p.there(".chart path.l"),
		p.picture("hour"),
		p.click(`a[href*="range=6h"]`), p.at("/?range=6h"), p.there(".chart path.l"), p.click(`a[href*="range=24h"]`),
		p.at("/?range=24h"), p.there(".chart path.l"),
		p.click(`a[href*="range=7d"]`), p.at("/?range=7d"), p.there(".chart path.l"), p.picture("week"),
	)
}
