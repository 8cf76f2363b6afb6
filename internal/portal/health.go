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
	return []page{{pattern: "/health", templateName: "health", title: "Health", topics: Nodes, buildView: loadHealth}}
}

// health is the page of problems, and recommended actions.
type health struct {
	Status         api.ControllerStatus
	Problems       []problem
	Lacking        []string
	Scrub          *api.ScrubState // nil: not known
	UsedLayerBytes int64           // bytes of layers that versions need
	CurlCommand    string
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
	h := &health{Status: status, CurlCommand: curlCommand(v, "GET", "/api/v1/status", "")}
	h.addController()
	disk, err := v.RegistryDisk(v)
	switch {
	case err != nil && status.RegistryStatus == "Running":
		h.Lacking = append(h.Lacking, "Registry storage: "+notShownReason(err))
	case err == nil && disk.Total > 0 && float64(disk.Free) < lowFreeShare*float64(disk.Total):
		h.addProblem("The registry has "+bytesize.Format(disk.Free)+" of "+bytesize.Format(disk.Total)+" free",
			"Delete unused templates, revert unused tags, or add disk space to the registry.", "/templates")
	}
	h.addRegistry(v)
	return h, h.addNodes(v)
}

// addRegistry adds the damage that the registry has found, and the progress of its verification. Where
// the registry is another process, or the visitor may not call it, only the number of damaged files
// is known.
func (h *health) addRegistry(v *visit) {
	n := h.Status.RegistryDamaged
	if v.registry == nil {
		if n > 0 {
			h.addProblem(pluralText(n, "template or version is damaged", "templates and versions are damaged")+
				" in the registry at "+h.Status.RegistryAddress,
				"List them: buildyard registry check, or GET /registry/status there. "+repairHint, "")
		}
		return
	}
	status, err := v.registry.Status(v)
	if err != nil {
		h.Lacking = append(h.Lacking, "Damaged templates: "+notShownReason(err))
		if n > 0 {
			h.addProblem(pluralText(n, "template or version is damaged", "templates and versions are damaged")+
				" in the registry",
				repairHint, "")
		}
	}
	for i, d := range status.Damaged {
		if i == rowsPerPage {
			h.addProblem(pluralText(len(status.Damaged)-i, "more is damaged", "more are damaged"),
				"buildyard registry check lists all of them.", "")
			break
		}
		what, path := "Template "+d.ID+" cannot be read: "+d.Problem, ""
		if d.Version != nil {
			what, path = fmt.Sprintf("Version %d of template %s cannot be pulled: %s", *d.Version,
				h.templateName(v, d.ID),
				d.Problem), templatePath(d.ID)
		}
		h.addProblem(what, repairHint, path)
	}
	stats, err := v.registry.Stats(v)
	if err != nil {
		h.Lacking = append(h.Lacking, "Verification of layers: "+notShownReason(err))
		return
	}
	h.Scrub, h.UsedLayerBytes = &stats.Scrub, stats.Disks+stats.States
}

// repairHint is the recommended action for damage in a registry.
const repairHint = "Push the same image again, or revert the version; or restore the file from a backup and " +
	"run buildyard registry repair."

// templateName returns the name of a template, or its ID if the visitor may not see it.
func (h *health) templateName(v *visit, id string) string {
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
	said := bytesize.Format(min(s.Verified, h.UsedLayerBytes)) + " of " + bytesize.Format(h.UsedLayerBytes) +
		" in this round"
	if s.Finished > 0 {
		said += "; the round before ended " + time.Unix(s.Finished, 0).UTC().Format("2 January 2006 15:04") + " UTC"
	}
	if s.Damaged > 0 {
		said += "; " + pluralText(s.Damaged, "layer is damaged", "layers are damaged")
	}
	return said
}

// lowFreeShare is the share of free space below which it is scarce.
const lowFreeShare = .1

func (h *health) addProblem(what, next, path string) {
	h.Problems = append(h.Problems, problem{what, next, path})
}

// addController adds the controller's own status.
func (h *health) addController() {
	s := &h.Status
	for _, alarm := range s.ActiveAlarms {
		if alarm.Name != api.AlarmRegistryDisk { // loadHealth asks for the present numbers
			h.addProblem(alarm.Message, cmp.Or(alarm.Action, "See the log of the controller."), "")
		}
	}
	if s.RegistryStatus != "Running" {
		h.addProblem("The registry at "+s.RegistryAddress+" cannot be reached",
			"Check that it runs and that the controller can reach its address. Until then nothing can be pulled or "+
				"saved; running instances continue.", "")
	}
	if s.Maintenance != nil {
		h.addProblem("Maintenance mode is on; cleanup is paused",
			"End it after the work: buildyard maintenance off, or DELETE /api/v1/maintenance.", "")
	}
	if s.UnknownVMs > 0 {
		h.addProblem(pluralText(s.UnknownVMs, "orphaned VM", "orphaned VMs"), "Adopt or remove: buildyard node adopt.",
			"/nodes")
	}
}

// addNodes adds those that do not do their work.
func (h *health) addNodes(v *visit) error {
	page, err := v.NodePage(v, client.PageOptions{Filter: "state:unhealthy,offline", Limit: rowsPerPage})
	if err != nil {
		h.Lacking = append(h.Lacking, "Nodes: "+notShownReason(err))
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
		h.addProblem(what, next, "/nodes/"+n.NodeID)
	}
	if more := page.Total - len(page.Nodes); more > 0 {
		h.addProblem(pluralText(more, "more node is", "more nodes are")+" unhealthy or offline", "Show all of them.",
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
