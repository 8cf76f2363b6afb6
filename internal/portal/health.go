package portal

import (
	"cmp"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
)

func (p *portal) healthPages() []page {
	return []page{{path: "/health", name: "health", title: "Health", topic: Nodes, load: loadHealth}}
}

// health is the page of problems, and recommended actions.
type health struct {
	Status   api.ControllerStatus
	Troubles []problem
	Lacking  []string
	Scrub    *api.ScrubState // nil: not known
	Held     int64           // bytes of layers that versions need
	Curl     string
}

// problem is something that is wrong.
type problem struct {
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
		h.add("The registry has "+bytesize.Format(disk.Free)+" of "+bytesize.Format(disk.Total)+" free",
			"Delete unused templates, revert unused tags, or add disk space to the registry.", "/templates")
	}
	h.registry(v)
	return h, h.nodes(v)
}

// registry adds the damage that the registry has found, and the progress of its verification. Where
// the registry is another process, or the visitor may not call it, only the number of damaged files
// is known.
func (h *health) registry(v *visit) {
	n := h.Status.RegistryDamaged
	if v.registry == nil {
		if n > 0 {
			h.add(plural(n, "template or version is damaged", "templates and versions are damaged")+
				" in the registry at "+h.Status.RegistryAddress,
				"List them: buildyard registry check, or GET /registry/status there. "+repairHint, "")
		}
		return
	}
	status, err := v.registry.Status(v)
	if err != nil {
		h.Lacking = append(h.Lacking, "Damaged templates: "+refusal(err))
		if n > 0 {
			h.add(plural(n, "template or version is damaged", "templates and versions are damaged")+" in the registry",
				repairHint, "")
		}
	}
	for i, d := range status.Damaged {
		if i == rowsOfPage {
			h.add(plural(len(status.Damaged)-i, "more is damaged", "more are damaged"),
				"buildyard registry check lists all of them.", "")
			break
		}
		what, path := "Template "+d.ID+" cannot be read: "+d.Problem, ""
		if d.Version != nil {
			what, path = fmt.Sprintf("Version %d of template %s cannot be pulled: %s", *d.Version, h.nameOf(v, d.ID),
				d.Problem), templatePath(d.ID)
		}
		h.add(what, repairHint, path)
	}
	stats, err := v.registry.Stats(v)
	if err != nil {
		h.Lacking = append(h.Lacking, "Verification of layers: "+refusal(err))
		return
	}
	h.Scrub, h.Held = &stats.Scrub, stats.Disks+stats.States
}

// repairHint is the recommended action for damage in a registry.
const repairHint = "Push the same image again, or revert the version; or restore the file from a backup and " +
	"run buildyard registry repair."

// nameOf returns the name of a template, or its ID if the visitor may not see it.
func (h *health) nameOf(v *visit, id string) string {
	if t, err := v.Template(v, id); err == nil {
		return t.Name
	}
	return id
}

// Verified describes the progress of the verification of all layers; "" where that is unknown.
func (h *health) Verified() string {
	s := h.Scrub
	switch {
	case s == nil:
		return ""
	case s.Rate == 0:
		return "switched off (SVC_SCRUB_RATE)"
	}
	said := bytesize.Format(min(s.Verified, h.Held)) + " of " + bytesize.Format(h.Held) + " in this round"
	if s.Finished > 0 {
		said += "; the round before ended " + time.Unix(s.Finished, 0).UTC().Format("2 January 2006 15:04") + " UTC"
	}
	if s.Damaged > 0 {
		said += "; " + plural(s.Damaged, "layer is damaged", "layers are damaged")
	}
	return said
}

// scarce is the share of free space below which it is scarce.
const scarce = .1

func (h *health) add(what, next, path string) {
	h.Troubles = append(h.Troubles, problem{what, next, path})
}

// controller adds the controller's own status.
func (h *health) controller() {
	s := &h.Status
	for _, alarm := range s.ActiveAlarms {
		if alarm.Name != api.AlarmRegistryDisk { // loadHealth asks for the present numbers
			h.add(alarm.Message, cmp.Or(alarm.Action, "See the log of the controller."), "")
		}
	}
	if s.RegistryStatus != "Running" {
		h.add("The registry at "+s.RegistryAddress+" cannot be reached",
			"Check that it runs and that the controller can reach its address. Until then nothing can be pulled or "+
				"saved; running instances continue.", "")
	}
	if s.Maintenance != nil {
		h.add("Maintenance mode is on; cleanup is paused",
			"End it after the work: buildyard maintenance off, or DELETE /api/v1/maintenance.", "")
	}
	if s.UnknownVMs > 0 {
		h.add(plural(s.UnknownVMs, "orphaned VM", "orphaned VMs"), "Adopt or remove: buildyard node adopt.", "/nodes")
	}
}

// nodes adds those that do not do their work.
func (h *health) nodes(v *visit) error {
	page, err := v.NodePage(v, client.PageOptions{Filter: "state:unhealthy,offline", Limit: rowsOfPage})
	if err != nil {
		h.Lacking = append(h.Lacking, "Nodes: "+refusal(err))
		return nil //nolint:nilerr // the page reports it
	}
	for _, n := range page.Nodes {
		what, next := fmt.Sprintf("Node %s is %s", n.NodeName, n.State),
			"Check that the machine runs, that its agent runs (buildnode run), and that it can reach the controller."
		if n.State != "Offline" {
			next = "See the state reason on the page of the node."
		}
		if n.StateReason != "" {
			what += ": " + n.StateReason
		}
		h.add(what, next, "/nodes/"+n.NodeID)
	}
	if more := page.Total - len(page.Nodes); more > 0 {
		h.add(plural(more, "more node is", "more nodes are")+" unhealthy or offline", "Show all of them.",
			"/nodes?q=state:unhealthy,offline")
	}
	return nil
}

// LicenseIs describes how Status.LicenseExpires relates to the license.
func (h *health) LicenseIs() string {
	at := h.Status.LicenseExpires
	switch {
	case at.IsZero():
		return "without an end"
	case time.Until(at) < 0:
		return "over since"
	}
	return "until"
}
