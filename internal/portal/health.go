package portal

import (
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (p *portal) healthPages() []page {
	return []page{{path: "/health", name: "health", title: "Health", topic: Nodes, load: loadHealth}}
}

// health is the page of what is wrong, and what to do.
type health struct {
	Status   api.ControllerStatus
	Troubles []trouble
	Lacking  []string
	Curl     string
}

// trouble is something that is wrong.
type trouble struct {
	What, Next string
	Path       string // of what it is about; "": nothing
}

func loadHealth(v *visit) (any, error) {
	status, err := v.Status(v)
	if err != nil {
		return nil, err
	}
	h := &health{Status: status, Curl: curl(v, "GET", "/api/v1/status", "")}
	h.controller()
	disk, err := v.RegistryDisk(v)
	switch {
	case err != nil && status.RegistryStatus == "Running":
		h.Lacking = append(h.Lacking, "Registry storage: "+refusal(err))
	case err == nil && disk.Total > 0 && float64(disk.Free) < scarce*float64(disk.Total):
		h.add("The registry has "+byteCount(disk.Free)+" of "+byteCount(disk.Total)+" free", "Delete templates or revert tags that nobody needs, or give the registry more room.", "/templates")
	}
	return h, h.nodes(v)
}

// scarce is the share of free room from which on it is little.
const scarce = .1

func (h *health) add(what, next, path string) {
	h.Troubles = append(h.Troubles, trouble{what, next, path})
}

// controller adds what the controller says of itself.
func (h *health) controller() {
	s := &h.Status
	for _, alarm := range s.Alarms {
		h.add(alarm, nextOf(alarm), "")
	}
	if s.RegistryStatus != "Running" {
		h.add("The registry at "+s.RegistryAddress+" cannot be reached", "See whether it runs and whether the controller reaches its address. Nothing can be pulled or saved until then; instances that run go on.", "")
	}
	if s.Maintenance != nil {
		h.add("A maintenance goes on: nothing is removed by itself", "End it when the work is done: buildyard maintenance off, or DELETE /api/v1/maintenance.", "")
	}
	if s.UnknownVMs > 0 {
		h.add(plural(s.UnknownVMs, "VM runs on a node and belongs", "VMs run on nodes and belong")+" to nobody", "Keep or remove them: buildyard node adopt.", "/nodes")
	}
}

// nextOf says what to do about an alarm.
func nextOf(alarm string) string {
	if strings.Contains(strings.ToLower(alarm), "licence") {
		return "Install a licence that is valid (SVC_LICENSE_FILE)."
	}
	return "The log of the controller says more."
}

// nodes adds those that do not do their work.
func (h *health) nodes(v *visit) error {
	page, err := v.NodePage(v, client.PageOptions{Filter: "state:unhealthy,offline", Limit: rowsOfPage})
	if err != nil {
		h.Lacking = append(h.Lacking, "Nodes: "+refusal(err))
		return nil //nolint:nilerr // it is told on the page
	}
	for _, n := range page.Nodes {
		what, next := fmt.Sprintf("Node %s is %s", n.NodeName, n.State), "See whether its machine runs, its agent runs (buildnode run) and it reaches the controller."
		if n.State != "Offline" {
			next = "Look at the node for what its agent says."
		}
		if n.StateReason != "" {
			what += ": " + n.StateReason
		}
		h.add(what, next, "/nodes/"+n.NodeID)
	}
	if more := page.Total - len(page.Nodes); more > 0 {
		h.add(plural(more, "more node is", "more nodes are")+" unhealthy or offline", "Look at all of them.", "/nodes?q=state:unhealthy,offline")
	}
	return nil
}

// Licence says how long the licence is good for.
func (h *health) Licence() string {
	at := h.Status.LicenseExpires
	switch {
	case at.IsZero():
		return h.Status.License + ", without an end"
	case time.Until(at) < 0:
		return h.Status.License + ", over since " + at.UTC().Format("2 January 2006")
	}
	return h.Status.License + ", until " + at.UTC().Format("2 January 2006")
}
