package hv

import "context"

// License is the license of a hypervisor.
type License struct {
	Kind    string // "" = none is needed
	Expires string // RFC 3339 or a day; "" = never. That of a license that is not valid is in the past
}

// LicenseReader is implemented by drivers whose hypervisor needs a license.
type LicenseReader interface {
	// ReadLicense asks the hypervisor for its license, which may be activated or end while the driver is
	// open. An error says nothing about the license. Describe returns the last one that was read.
	ReadLicense(ctx context.Context) (License, error)
}
