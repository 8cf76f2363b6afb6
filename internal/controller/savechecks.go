package controller

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// checkedSave is a request to save an instance with the result of its checks.
type checkedSave struct {
	SaveImageRequest
	inst   *farm.Instance
	detail api.TemplateDetail // of the template that gets the tag; zero for a new one
}

// saveChecks are the checks of a request to save an instance. Those of types and lengths come before
// them, those of the caller's limits after. Whether the tag exists is decided as of after the planned
// revert; the registry checks it again at the end.
var saveChecks = []requestCheck[checkedSave]{
	{"instance", checkSaved},
	{"state of the instance", checkSavedState},
	{"template, and the caller's rights on it", checkDestination},
	{"name of the template", checkSaveName},
	{"architecture", checkSaveArch},
	{"tag", checkSaveTag},
}

func checkSaved(ctx context.Context, c *Controller, s *checkedSave) (err error) {
	s.inst, err = c.Instances.Latest(ctx, s.InstanceID)
	return err
}

func checkSavedState(_ context.Context, _ *Controller, s *checkedSave) error {
	return s.inst.CheckTask(farm.SaveBegun)
}

// checkDestination finds the template that gets the tag, unless a new one does.
func checkDestination(ctx context.Context, c *Controller, s *checkedSave) (err error) {
	if s.createsTemplate() {
		return nil
	}
	if s.RevertBeforePush {
		s.detail, err = c.Templates.ForSaveRevert(ctx, s.TemplateID, s.NoRevert)
	} else {
		s.detail, err = c.Templates.ForSave(ctx, s.TemplateID)
	}
	return err
}

func checkSaveName(_ context.Context, _ *Controller, s *checkedSave) error {
	if name := s.NewTemplateName; !s.createsTemplate() && name != "" && name != s.detail.Name {
		return farm.Refused(
			"new_template_name %s does not match target_vm_id, which has the template name %s: leave one of them out",
			name, s.detail.Name)
	}
	return nil
}

func checkSaveArch(_ context.Context, _ *Controller, s *checkedSave) error {
	if from, to := s.inst.Template.Arch, s.detail.Arch; from != "" && to != "" && from != to {
		return farm.Refused("Architecture mismatch: template %s is for %s, the instance is for %s", s.detail.Name, to,
			from)
	}
	return nil
}

func checkSaveTag(_ context.Context, _ *Controller, s *checkedSave) error {
	has := func(v api.TemplateVersion) bool { return v.Tag == s.Tag }
	if slices.ContainsFunc(remaining(s.detail.Versions, s.SaveOptions), has) {
		return farm.Refused("Template %s already has the tag %s", s.detail.Name, s.Tag)
	}
	return nil
}

// createsTemplate reports whether the save creates a template.
func (s *checkedSave) createsTemplate() bool { return s.TemplateID == "" }

// destination returns the options of the save. A new template gets its id here, so that an order that
// is sent again creates no second one.
func (s *checkedSave) destination() farm.SaveOptions {
	o := s.SaveOptions
	if s.createsTemplate() {
		o.TemplateID = uuid.NewString()
		return o
	}
	o.TemplateID, o.NewTemplateName = s.detail.ID, ""
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
