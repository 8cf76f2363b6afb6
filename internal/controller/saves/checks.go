package saves

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// checkedRequest is a request with the result of its checks.
type checkedRequest struct {
	Request
	inst   *farm.Instance
	detail api.TemplateDetail // of the template that gets the tag; zero for a new one
}

// check is a row of the table of checks that a request passes before anything is written.
type check struct {
	about string // in a few words
	// run returns why the request is refused; nil when it is not. It may note in the request what the
	// later checks, and the use case, need.
	run func(ctx context.Context, s *Saves, r *checkedRequest) error
}

// checks are the checks of a request, in their order. Those of types and lengths come before
// them, those of the caller's limits after. Whether the tag exists is decided as of after the planned
// revert; the registry checks it again at the end.
var checks = []check{
	{"instance", checkInstance},
	{"state of the instance", checkState},
	{"hypervisor of the node", checkHypervisor},
	{"template, and the caller's rights on it", checkTemplate},
	{"name of the template", checkName},
	{"architecture", checkArch},
	{"tag", checkTag},
}

func checkInstance(ctx context.Context, s *Saves, r *checkedRequest) (err error) {
	r.inst, err = s.o.Instances.Latest(ctx, r.InstanceID)
	return err
}

func checkState(_ context.Context, _ *Saves, r *checkedRequest) error {
	return r.inst.CheckTask(farm.SaveBegun)
}

// checkHypervisor refuses what the node's hypervisor cannot do. Where the settings allow it, a guest
// that cannot be saved while it runs is shut down first.
func checkHypervisor(_ context.Context, s *Saves, r *checkedRequest) error {
	info := s.db.Tables.NodeInfo(r.inst.NodeID)
	driver := info.Hypervisor.Driver
	switch {
	case r.inst.Template.AnkaImage:
		return farm.Refused("Anka cannot save VMs: change the VM of the template with anka, and import it again")
	case !info.CanSave():
		return farm.Refused("This node's hypervisor (%s) cannot save VMs", driver)
	case !r.Suspend || info.CanSuspend(r.inst.Template.OS):
		return nil
	case s.o.StopFallback:
		r.Suspend, r.SanityTest = false, false
		return nil
	case r.inst.Template.OS != farm.OSMacOS && info.RunsPCs():
		return farm.Refused(farm.RefusalSuspendPC, driver)
	case info.RunsPCs():
		driver = "Node " + r.inst.NodeName
	}
	return farm.Refused(farm.RefusalSuspend, driver)
}

// checkTemplate finds the template that gets the tag, unless a new one does.
func checkTemplate(ctx context.Context, s *Saves, r *checkedRequest) (err error) {
	if r.createsTemplate() {
		return nil
	}
	if r.RevertBeforePush {
		r.detail, err = s.o.Templates.ForSaveRevert(ctx, r.TemplateID, r.NoRevert)
	} else {
		r.detail, err = s.o.Templates.ForSave(ctx, r.TemplateID)
	}
	return err
}

func checkName(_ context.Context, _ *Saves, r *checkedRequest) error {
	if name := r.NewTemplateName; !r.createsTemplate() && name != "" && name != r.detail.Name {
		return farm.Refused(
			"new_template_name %s does not match target_vm_id, which has the template name %s: leave one of them out",
			name, r.detail.Name)
	}
	return nil
}

func checkArch(_ context.Context, _ *Saves, r *checkedRequest) error {
	if from, to := r.inst.Template.Arch, r.detail.Arch; from != "" && to != "" && from != to {
		return farm.Refused("Architecture mismatch: template %s is for %s, the instance is for %s", r.detail.Name, to,
			from)
	}
	return nil
}

func checkTag(_ context.Context, _ *Saves, r *checkedRequest) error {
	has := func(v api.TemplateVersion) bool { return v.Tag == r.Tag }
	if slices.ContainsFunc(remaining(r.detail.Versions, r.SaveOptions), has) {
		return farm.Refused("Template %s already has the tag %s", r.detail.Name, r.Tag)
	}
	return nil
}

// createsTemplate reports whether the save creates a template.
func (r *checkedRequest) createsTemplate() bool { return r.TemplateID == "" }

// destination returns the options of the save. A new template gets its id here, so that an order that
// is sent again creates no second one.
func (r *checkedRequest) destination() farm.SaveOptions {
	o := r.SaveOptions
	if r.createsTemplate() {
		o.TemplateID = uuid.NewString()
		return o
	}
	o.TemplateID, o.NewTemplateName = r.detail.ID, ""
	return o
}

// remaining returns the versions that the planned revert leaves. A tag that does not exist means no
// revert.
func remaining(versions []api.TemplateVersion, o farm.SaveOptions) []api.TemplateVersion {
	if !o.RevertBeforePush || len(versions) == 0 {
		return versions
	}
	if o.RevertTag == "" {
		return versions[:len(versions)-1]
	}
	i := slices.IndexFunc(versions, func(v api.TemplateVersion) bool { return v.Tag == o.RevertTag })
	if i < 0 {
		return versions
	}
	return versions[:i]
}
