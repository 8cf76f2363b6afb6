package templates

import (
	"context"
	"errors"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestRightsOfSaves: a save with a revert is authorized as a revert too, by the registry or,
// where that enforces no permissions, by the controller.
func TestRightsOfSaves(t *testing.T) {
	no := errors.New("no registry_delete")
	for name, test := range map[string]struct {
		rights api.CallerRights
		on     []string
		revert bool
		want   string
	}{
		"a tag": {
			api.CallerRights{Enforced: true, Managed: true}, []string{"save_image"}, false, "",
		},
		"a tag, with another right": {
			api.CallerRights{Enforced: true, Managed: true},
			[]string{"list", "push_tag"},
			false, "You need the permission save_image on the template " + templateID,
		},
		"a tag, unlisted": {api.CallerRights{Enforced: true, Managed: true}, nil, false, "Not found"},
		"a revert": {api.CallerRights{
			Enforced: true, Managed: true, Permissions: []string{"revert"},
		}, []string{"save_image", "delete_revert"}, true, ""},
		"a revert without the permission": {
			api.CallerRights{Enforced: true},
			nil, true,
			"Your credential needs the permission revert or save_revert at the registry",
		},
		"a revert with the permission": {
			api.CallerRights{Enforced: true, Permissions: []string{"revert"}}, nil, true, "",
		},
		"a revert without the right": {api.CallerRights{
			Enforced: true, Managed: true, Permissions: []string{"revert"},
		}, []string{"save_image", "list"}, true, "You need the permission delete_revert on the template " + templateID},
		"a revert where no permissions are required": {
			api.CallerRights{Permissions: []string{"revert"}}, nil, true, no.Error(),
		},
		"a tag where no permissions are required": {api.CallerRights{}, nil, false, ""},
		"root, or without authentication":         {},
		"a revert of root":                        {revert: true},
	} {
		r := rights{}
		var denied error
		if test.rights.Permissions != nil || test.rights.Enforced || test.want != "" {
			test.rights.Templates = map[string][]string{templateID: test.on}
			r.CallerRights, denied = &test.rights, no
		}
		err := r.check(saveRight, templateID)
		if test.revert {
			err = r.checkSaveRevert(templateID, denied)
		}
		if got := text(err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestLayerFilesNeedPull: details name the layer files to callers that may pull them.
func TestLayerFilesNeedPull(t *testing.T) {
	may := &api.CallerRights{Enforced: true, Managed: true, Permissions: []string{"list_vms"}}
	r := newFakeRegistry()
	r.detail.Versions[1].StateFiles = []string{"s.ank"}
	templates := open(t, r, func(context.Context, string) (*api.CallerRights, error) { return may, nil })
	for _, rights := range [][]string{{"list"}, {"list", "pull"}} {
		may.Templates = map[string][]string{templateID: rights}
		d, err := templates.Get(t.Context(), templateID)
		if err != nil || len(d.Versions) != 2 || len(d.Versions[1].StateFiles) != len(rights)-1 {
			t.Errorf("with %v: %+v, %v", rights, d.Versions, err)
		}
	}
}

// TestListNeedsRights: lists have only what the caller may list, also where the registry's response is
// shared.
func TestListNeedsRights(t *testing.T) {
	may := &api.CallerRights{Enforced: true, Managed: true, Permissions: []string{"list_vms"}}
	var failure error
	r := newFakeRegistry()
	templates := open(t, r, func(context.Context, string) (*api.CallerRights, error) { return may, failure })
	list, err := templates.List(t.Context())
	if err != nil || len(list) != 0 || templates.Visible(t.Context())(templateID) {
		t.Errorf("without rights: %v, %v", list, err)
	}
	may.Templates = map[string][]string{templateID: {"list"}}
	list, err = templates.List(t.Context())
	if err != nil || len(list) != 1 || !templates.Visible(t.Context())(templateID) {
		t.Errorf("with the right: %v, %v", list, err)
	}
	may.Permissions = nil
	_, err = templates.List(t.Context())
	if text(err) != "Your credential needs the permission list_vms at the registry" ||
		templates.Visible(t.Context())(templateID) {
		t.Errorf("without the permission: %v", err)
	}
	failure = errors.New("connection refused")
	_, err = templates.List(t.Context())
	if farm.CodeOf(err) != farm.CodeUnavailable || templates.Visible(t.Context())(templateID) {
		t.Errorf("rights that cannot be read: %v", err)
	}
	for _, down := range []bool{false, true} { // also where the template is known
		r.setDown(down)
		if _, _, err = templates.Resolve(t.Context(), templateID, "", nil); farm.CodeOf(err) != farm.CodeUnavailable {
			t.Errorf("a start: %v", err)
		}
	}
}
