package main

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// Sizes and times of what is measured.
const (
	instances  = 10_000
	searched   = 20_000 // instances of the search: as many again wait
	nodes      = 1000
	slots      = 12  // of each of them
	changes    = 100 // a second: half of them starts, half ends
	leastShare = 0.95

	looks      = 60 // of each page, first ones and refreshes
	paintings  = 9
	openTabs   = 20
	wholeWatch = 600 // seconds that the tab is watched
	window     = 60 * time.Second
	visitTime  = 2 * time.Second
	glance     = 10 * time.Second       // between two looks at the tab
	recount    = 300 * time.Millisecond // between the counts of a look
	settle     = 10 * time.Second
	limit      = 15 * time.Minute // of a run, without the time that the tab is watched
)

// sight is a page that is looked at.
type sight struct{ name, path string }

func (s sight) first() string   { return "first-" + s.name }
func (s sight) refresh() string { return "refresh-" + s.name }
func (s sight) paint() string   { return "paint-" + s.name }
func (s sight) ratio() string   { return "ratio-" + s.name }

var sights = []sight{{"instances", "/instances"}, {"nodes", "/nodes"}, {"dashboard", "/"}, {"templates", "/templates"}}

// The other rows.
const (
	rowTabs      = "tabs-20"
	rowTabsOne   = "tabs-20-instances"
	rowHeap      = "tab-heap"
	rowNodes     = "tab-nodes"
	rowListeners = "tab-listeners"
	rowWire      = "tab-wire"
	rowVisit     = "first-visit"
	rowSearch    = "search-20000"
)

var how = struct{ first, refresh, paint, ratio, tabs, tab, wire, visit, search string }{
	first: fmt.Sprintf(
		"95th percentile of %d looks: from the request of a logged-in client over loopback until the last byte of "+
			"the page", looks),
	refresh: fmt.Sprintf(
		"95th percentile of %d refreshes as the page asks for them: from the request until the last byte, so that "+
			"the way over loopback is in it",
		looks),
	paint: fmt.Sprintf(
		"median of %d visits of a logged-in Chromium, each with an empty cache, so that styles and scripts are in it: "+
			"from the begin of the navigation until the first contentful paint, less what a line of text takes in the "+
			"same browser just before; the browser, which draws without a graphics card, shares the cores with "+
			"everything else", paintings),
	tabs: fmt.Sprintf(
		"processor time of the controller's process over %s while %d tabs are open, less the mean of that over %s "+
			"before and after without one, of one core; a tab is a client that does what the page does: it asks for the "+
			"page and its files, follows its stream, and refreshes when that tells of a change and every 10 s. The "+
			"server tells a tab once a "+
			"second at most, and less often where refreshing all takes more than a tenth of a core: how often is "+
			"said beside the value; a tab on /instances that is refreshed less than every %.0f s misses",
		window, openTabs, window, 1/leastFresh),
	tab: fmt.Sprintf(
		"/instances in Chromium for %d s; every %s garbage is collected and then counted, three times, of which the "+
			"least counts, because during a refresh the old rows are there too; how far the mean of the last third "+
			"is from that of the second", wholeWatch, glance),
	ratio: "the medians of the visits of paint: that of the page as a multiple of that of the line of text",
	wire: fmt.Sprintf("bytes of all responses that Chromium receives for /instances over %s, as they are on the wire; a "+
		"tab that is refreshed less than every %.0f s misses", window, 1/leastFresh),
	visit: "bytes of all responses that Chromium receives with an empty cache, as they are on the wire; the largest of " +
		"the four pages",
	search: fmt.Sprintf("95th percentile of %d searches for an ID, a part of many names, of none, a node and an "+
		"external ID, over %d instances of which half wait: from the request of a logged-in client over loopback "+
		"until the last byte", looks, searched),
}

var rows = func() (list []row.Row) {
	for _, s := range sights {
		list = append(list, row.Row{Name: s.first(), What: "first page of " + s.path +
			", p95", Unit: "ms", Target: 200, Digits: 1, Need: looks, Quantile: 0.95, How: how.first})
	}
	for _, s := range sights {
		list = append(list, row.Row{
			Name: s.paint(), What: s.path +
				" in Chromium, first paint beyond that of a line of text", Unit: "ms", Target: 200, Need: paintings,
			How: how.paint,
		})
	}
	for _, s := range sights {
		list = append(list, row.Row{
			Name: s.ratio(), What: s.path + " in Chromium, first paint as a multiple of that of a line of text",
			Unit: "x", Target: 1.5, Digits: 2, Need: 1, How: how.ratio,
		})
	}
	for _, s := range sights {
		list = append(list, row.Row{Name: s.refresh(), What: "live refresh of " + s.path +
			", p95", Unit: "ms", Target: 50, Digits: 1, Need: looks, Quantile: 0.95, How: how.refresh})
	}
	return append(
		list,
		row.Row{
			Name: rowTabs, What: "20 tabs on the four pages: CPU of the server, of one core", Unit: "%", Target: 15,
			Digits: 1, Need: 1, How: how.tabs,
		},
		row.Row{
			Name: rowTabsOne, What: "20 tabs on /instances: the same", Unit: "%", Target: 15, Digits: 1, Need: 1,
			How: how.tabs,
		},
		row.Row{
			Name: rowHeap, What: "heap of the tab: last third beside the second", Unit: "%", Target: 10, Digits: 1,
			Need: 1, How: how.tab,
		},
		row.Row{Name: rowNodes, What: "its DOM nodes", Unit: "%", Target: 10, Digits: 1, Need: 1, How: how.tab},
		row.Row{
			Name: rowListeners, What: "its listeners of events", Unit: "%", Target: 10, Digits: 1, Need: 1,
			How: how.tab,
		},
		row.Row{
			Name: rowWire, What: "a live tab of /instances over the wire", Unit: "kB/s", Target: 20, Digits: 1, Need: 1,
			How: how.wire,
		},
		row.Row{
			Name: rowVisit, What: "transferred on a first visit", Unit: "kB", Target: 150, Need: len(sights), Quantile: 1,
			How: how.visit,
		},
		row.Row{
			Name: rowSearch, What: "search over 20,000 instances, p95", Unit: "ms", Target: 30, Digits: 1, Need: looks,
			Quantile: 0.95, How: how.search,
		},
	)
}()
