package diagnose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/doctor"
	"github.com/buildyard/buildyard/internal/obs"
)

// cloudChecks are the checks of what the API reports.
type cloudChecks struct {
	api    *client.Controller
	status func() (api.ControllerStatus, error) // called once
}

// notChecked returns the finding of a check whose call failed.
func notChecked(err error) doctor.Finding {
	f := doctor.Finding{Outcome: doctor.Warning, Detail: "not checked: " + err.Error()}
	switch {
	case errors.Is(err, client.ErrUnauthenticated), errors.Is(err, client.ErrForbidden):
		f.Remedy = "repeat it with credentials that may read this (--token-file, --api-key-id)"
	case errors.Is(err, client.ErrUnreachable):
		f.Remedy = "see the check of the controller"
	default:
		f.Remedy = "see the log of the controller"
	}
	return f
}

// findAccess checks that the API accepts the caller.
func (c *cloudChecks) findAccess(context.Context) doctor.Finding {
	st, err := c.status()
	if err != nil {
		f := notChecked(err)
		f.Outcome, f.Detail = doctor.Failed, err.Error()
		return f
	}
	return doctor.Finding{Outcome: doctor.OK, Detail: "controller " + st.Version + " is " + st.Status}
}

// findRegistry checks the registry as the controller sees it.
func (c *cloudChecks) findRegistry(context.Context) doctor.Finding {
	st, err := c.status()
	switch {
	case err != nil:
		return notChecked(err)
	case st.RegistryStatus != "Running":
		return doctor.Finding{
			Outcome: doctor.Failed, Detail: "the controller cannot use the registry at " + st.RegistryAddress,
			Remedy: "start the registry, or correct SVC_REGISTRY of the controller and the registry's credentials",
		}
	case st.RegistryDamaged > 0:
		return doctor.Finding{
			Outcome: doctor.Failed, Detail: cli.Plural(st.RegistryDamaged, "damaged template or version"),
			Remedy: "docs/troubleshooting.md, a version is damaged",
		}
	}
	return doctor.Finding{Outcome: doctor.OK, Detail: st.RegistryAddress + " is Running"}
}

// findVersion compares this program with the controller.
func (c *cloudChecks) findVersion(context.Context) doctor.Finding {
	st, err := c.status()
	if err != nil {
		return notChecked(err)
	}
	if own := obs.FullVersion(); own != st.Version {
		return doctor.Finding{
			Outcome: doctor.Warning, Detail: fmt.Sprintf("this program is %s, the controller %s", own, st.Version),
			Remedy: "use the program of the controller's release; one release of difference works",
		}
	}
	return doctor.Finding{Outcome: doctor.OK, Detail: "this program and the controller are " + st.Version}
}

// licenseWarning is the time before the end of a license.
const licenseWarning = 30 * 24 * time.Hour

func (c *cloudChecks) findLicense(context.Context) doctor.Finding {
	st, err := c.status()
	if err != nil {
		return notChecked(err)
	}
	if st.LicenseExpires.IsZero() {
		return doctor.Finding{Outcome: doctor.OK, Detail: st.License + ", without an end"}
	}
	f := doctor.Finding{
		Outcome: doctor.OK, Detail: st.License + ", ends on " + st.LicenseExpires.UTC().Format(time.DateOnly),
		Remedy: "install a license that is valid longer (SVC_LICENSE_FILE)",
	}
	if time.Until(st.LicenseExpires) < licenseWarning {
		f.Outcome = doctor.Warning
	}
	return f
}

// findNodes checks the states of the nodes.
func (c *cloudChecks) findNodes(ctx context.Context) doctor.Finding {
	nodes, err := c.api.Nodes(ctx, client.ListOptions{})
	if err != nil {
		return notChecked(err)
	}
	if len(nodes) == 0 {
		return doctor.Finding{
			Outcome: doctor.Warning, Detail: "the cloud has no nodes",
			Remedy: "join one: buildyard node token, then buildnode join URL --token-file FILE",
		}
	}
	states, names := map[string]int{}, []string{}
	for _, n := range nodes {
		states[n.State]++
		if n.State != "Active" && n.State != "Drain Mode" && n.State != "Updating" {
			names = append(names, n.NodeName)
		}
	}
	f := doctor.Finding{Outcome: doctor.OK, Detail: countStates(states)}
	if len(names) > 0 {
		f.Outcome, f.Detail = doctor.Warning, f.Detail+": "+firstNames(names)
		f.Remedy = "run buildnode doctor there; docs/troubleshooting.md, a node is not Active"
	}
	return f
}

// countStates returns "3 Active, 1 Offline".
func countStates(states map[string]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	return strings.Join(parts, ", ")
}

// firstNames lists the first of many names.
func firstNames(names []string) string {
	const limit = 5
	slices.Sort(names)
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + fmt.Sprintf(" and %d more", len(names)-limit)
	}
	return strings.Join(names, ", ")
}

// findAgents compares the versions of the agents with the controller's.
func (c *cloudChecks) findAgents(ctx context.Context) doctor.Finding {
	st, err := c.status()
	if err != nil {
		return notChecked(err)
	}
	nodes, err := c.api.Nodes(ctx, client.ListOptions{})
	if err != nil {
		return notChecked(err)
	}
	var others []string
	for _, n := range nodes {
		if n.AgentVersion != "" && n.AgentVersion != st.Version {
			others = append(others, n.NodeName+" "+n.AgentVersion)
		}
	}
	if len(others) > 0 {
		return doctor.Finding{
			Outcome: doctor.Warning,
			Detail: fmt.Sprintf("%d of %s have another version than %s: %s", len(others),
				cli.Plural(len(nodes), "agent"), st.Version, firstNames(others)),
			Remedy: "update them: docs/upgrade.md",
		}
	}
	return doctor.Finding{Outcome: doctor.OK, Detail: cli.Plural(len(nodes), "agent") + " of " + st.Version}
}

// findNodeClocks checks the clocks of the nodes as the controller sees them.
func (c *cloudChecks) findNodeClocks(ctx context.Context) doctor.Finding {
	nodes, err := c.api.Nodes(ctx, client.ListOptions{})
	if err != nil {
		return notChecked(err)
	}
	var wrong []string
	for _, n := range nodes {
		if n.ClockOffset != nil && time.Duration(*n.ClockOffset*float64(time.Second)).Abs() > api.MaxClockOffset {
			wrong = append(wrong, fmt.Sprintf("%s %+.0f s", n.NodeName, *n.ClockOffset))
		}
	}
	if len(wrong) > 0 {
		return doctor.Finding{
			Outcome: doctor.Failed, Detail: "clocks that differ from the controller's: " + firstNames(wrong),
			Remedy: "synchronize the clocks of these nodes by NTP",
		}
	}
	return doctor.Finding{Outcome: doctor.OK, Detail: "agree with the controller's"}
}

// longWait is the wait of a pending instance that needs an operator.
const longWait = 10 * time.Minute

// findQueue checks how long instances are pending.
func (c *cloudChecks) findQueue(ctx context.Context) doctor.Finding {
	stats, err := c.api.Stats(ctx)
	if err != nil {
		return notChecked(err)
	}
	oldest := time.Duration(stats.OldestWait * float64(time.Second)).Round(time.Second)
	f := doctor.Finding{
		Outcome: doctor.OK, Detail: cli.Plural(stats.QueueDepth, "pending instance"),
		Remedy: "see the reasons: buildyard top --once, buildyard instance explain INSTANCE",
	}
	if stats.QueueDepth > 0 {
		f.Detail += fmt.Sprintf(", the oldest for %s", oldest)
	}
	if oldest > longWait {
		f.Outcome = doctor.Warning
	}
	return f
}
