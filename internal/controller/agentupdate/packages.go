package agentupdate

import "github.com/buildyard/buildyard/api"

// Packages has the agent packages of a controller.
type Packages interface {
	PackageFor(system, arch string) (api.AgentPackage, bool)
	Packages() []api.AgentPackage
	MissingHint(system, arch string) string // how to obtain one
	Refresh()                               // reads packages that have appeared a moment ago
}

// PackageDirectory is the directory that a controller has its agent packages in.
type PackageDirectory interface {
	Packages
	Keys() string             // public keys of their signers, for nodes that join; "" for none
	Problem() string          // an error that requires an operator; "" for none
	Changed() <-chan struct{} // has a value when the packages have changed
}

// NoPackages are the packages of a controller without a directory of packages.
type NoPackages struct{}

var _ PackageDirectory = NoPackages{}

// PackageFor implements Packages.
func (NoPackages) PackageFor(string, string) (p api.AgentPackage, ok bool) { return p, false }

// Packages implements Packages.
func (NoPackages) Packages() []api.AgentPackage { return nil }

// Keys implements PackageDirectory.
func (NoPackages) Keys() string { return "" }

// MissingHint implements Packages.
func (NoPackages) MissingHint(string, string) string { return "This controller has no agent packages" }

// Problem implements PackageDirectory.
func (NoPackages) Problem() string { return "" }

// Refresh implements Packages.
func (NoPackages) Refresh() {}

// Changed implements PackageDirectory.
func (NoPackages) Changed() <-chan struct{} { return nil }
