package anka

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.LicenseReader = (*Driver)(nil)

const validLicense = "valid" // status of a license

// ReadLicense asks anka for its license. One that is missing or not valid ends at farm.InvalidLicense.
func (d *Driver) ReadLicense(ctx context.Context) (hv.License, error) {
	var shown shownLicense
	err := d.cli.ask(ctx, call{timeout: probeTimeout, args: []string{"license", "show"}}, &shown)
	if _, isReported := errors.AsType[*Error](err); err != nil && !isReported {
		return hv.License{}, err
	}
	license := hv.License{Kind: shown.Type, Expires: shown.Expires}
	if shown.Status != validLicense {
		license.Expires = farm.InvalidLicense
	}

	d.mu.Lock()
	isNew := license != d.license
	d.license = license
	d.mu.Unlock()

	if isNew && shown.Status != validLicense {
		status := printable(shown.Status)
		if err != nil {
			status = err.Error()
		}
		d.log.WarnContext(ctx, "anka starts no VMs: its license is not valid; activate one with anka license activate",
			"status", status)
	}
	return license, nil
}
