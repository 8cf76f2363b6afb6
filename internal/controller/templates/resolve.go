package templates

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Resolve returns the version for a start from the registry or, while that cannot be reached, from the
// last known state of the template; with neither tag nor number the latest. The note is for the message
// of the instances.
func (t *Templates) Resolve(
	ctx context.Context, id, tag string, number *int,
) (ref farm.TemplateRef, note string, err error) {
	detail, rights, err := t.detail(ctx, id)
	if unreachable(err) && rights.known {
		if err := rights.check(pullRight, strings.ToLower(id)); err != nil {
			return ref, "", notInRegistry(err)
		}
		return t.resolveKnown(id, tag, number, err)
	}
	if err == nil {
		err = rights.check(pullRight, detail.ID)
	}
	if err != nil {
		return ref, "", notInRegistry(err)
	}
	version, err := pickVersion(detail, tag, number)
	if err != nil {
		return ref, "", err
	}

	ref = refOf(detail, version)
	config, err := t.configs.get(ctx, detail.ID, version)
	if farm.CodeOf(err) == farm.CodeNoVersion { // reverted a moment ago
		return ref, "", farm.Refused("No such tag %s", version.Tag)
	}
	if err = registryError(err); err == nil {
		configure(&ref, config)
		return ref, "", nil
	}
	known, _, _ := t.db.Tables.KnownTemplates.Get(detail.ID)
	if same, ok := known.Version(version.ContentID); ok && unreachable(err) { // nothing may have changed
		return same, "", nil
	}
	return ref, "", err
}

// resolveKnown finds the version for a start in the last known state of its template, since the
// registry cannot be reached, and returns a note for the instance's message.
func (t *Templates) resolveKnown(
	id, tag string, number *int, unreachable error,
) (farm.TemplateRef, string, error) {
	var none farm.TemplateRef
	cause, _ := errors.AsType[*farm.Error](unreachable)
	known, _, ok := t.db.Tables.KnownTemplates.Get(strings.ToLower(id))
	if !ok {
		return none, "", unknown(cause, "Template %s is not in the controller's records", id)
	}
	picked, err := pickVersion(known.Detail(strings.ToLower(id)), tag, number)
	if err != nil {
		return none, "",
			unknown(cause, "The requested version of template %s is not in the controller's records", known.Name)
	}
	ref, _ := known.Version(picked.ContentID)
	return ref, "the registry cannot be reached: tag " + ref.Tag +
		" is taken from the last known state of the template", nil
}

// unknown refuses what is not in the records while the registry cannot be reached, which is the cause of the error.
func unknown(unreachable *farm.Error, format string, args ...any) error {
	err := farm.Refused(format+", and the registry cannot be queried: %s", append(args, unreachable.Message)...)
	err.Err = unreachable
	return err
}

// pickVersion returns the version of a template with a tag or number; with neither the latest.
func pickVersion(detail api.TemplateDetail, tag string, number *int) (api.TemplateVersion, error) {
	var none api.TemplateVersion
	if len(detail.Versions) == 0 {
		return none, farm.Refused("Template %s has no versions", detail.Name)
	}
	if tag == "" && number == nil {
		return detail.Versions[len(detail.Versions)-1], nil
	}
	for _, v := range detail.Versions {
		switch {
		case tag != "" && v.Tag == tag:
			if number != nil && v.Number != *number {
				return none, farm.Refused("tag %s is version %d, not %d: use only one of tag and version", tag,
					v.Number, *number)
			}
			return v, nil
		case tag == "" && v.Number == *number:
			return v, nil
		}
	}
	if tag == "" {
		tag = strconv.Itoa(*number)
	}
	return none, farm.Refused("No such tag %s", tag)
}

// unreachable reports whether an error means that the registry did not answer. A registry that
// refuses the controller's credentials did answer.
func unreachable(err error) bool {
	if farm.CodeOf(err) != farm.CodeUnavailable {
		return false
	}
	e, _ := errors.AsType[*farm.Error](err)
	return farm.CodeOf(e.Err) != farm.CodeUnauthenticated
}

// notInRegistry returns, for a template that does not exist, the text that clients compare; other
// errors as they are.
func notInRegistry(err error) error {
	if farm.CodeOf(err) == farm.CodeNotFound {
		return farm.Refused("VM not in the registry")
	}
	return err
}
