package portal

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) healthPages() []page {
	return []page{{pattern: "/health", templateName: "health", title: "Health", topics: Nodes, buildView: loadHealth}}
}

// health is the page of problems, and recommended actions.
type health struct {
	Status         api.ControllerStatus
	Problems       []problem
	Damaged        []damage // the first ones of what the registry has found
	DamagedCount   int
	Lacking        []string
	Scrub          *api.ScrubState // nil: not known
	UsedLayerBytes int64           // bytes of layers that versions need
	CurlCommand    string
}

func loadHealth(v *visit) (any, error) {
	status, err := v.status()
	if err != nil {
		return nil, err
	}
	h := &health{Status: status, CurlCommand: curlCommand(v, "GET", "/api/v1/status", "")}
	stats, err := v.stats()
	if err != nil {
		h.Lacking = append(h.Lacking, "Nodes and instances: "+notShownReason(err))
	}
	h.Problems = troubleOf(&status, orNil(stats, err))
	if _, err := v.RegistryDisk(v); err != nil && status.RegistryStatus == "Running" {
		h.Lacking = append(h.Lacking, "Registry storage: "+notShownReason(err))
	}
	h.addRegistry(v)
	return h, nil
}

// damage is a template or version that cannot be pulled.
type damage struct{ What, Path string }

// addRegistry adds the damage that the registry has found, and the progress of its verification. Where the registry
// is another process, or the visitor may not call it, only the number of damaged versions is known.
func (h *health) addRegistry(v *visit) {
	if v.registry == nil {
		return
	}
	status, err := v.registry.Status(v)
	if err != nil {
		h.Lacking = append(h.Lacking, "Damaged templates: "+notShownReason(err))
	}
	for _, d := range status.Damaged[:min(len(status.Damaged), rowsPerPage)] {
		one := damage{What: "Template " + d.ID + " cannot be read: " + d.Problem}
		if d.Version != nil {
			one = damage{
				fmt.Sprintf("Version %d of template %s cannot be pulled: %s", *d.Version, h.templateName(v, d.ID),
					d.Problem), templatePath(d.ID),
			}
		}
		h.Damaged = append(h.Damaged, one)
	}
	h.DamagedCount = len(status.Damaged)
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
		said += "; " + format.Plural(s.Damaged, "layer is damaged", "layers are damaged")
	}
	return said
}

// LicenseIs describes how Status.LicenseExpires relates to the license.
func (h *health) LicenseIs() string {
	at := h.Status.LicenseExpires
	switch {
	case at.IsZero():
		return "does not expire"
	case time.Until(at) < 0:
		return "expired on"
	}
	return "valid until"
}
