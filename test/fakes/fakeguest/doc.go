// Package fakeguest is what the imitations of hypervisors' command lines have in common: a guest that is processes of
// the host, its agent, the programs in its PATH, its files as an archive, and the knobs that tests set.
//
// It is not a hypervisor: how VMs are stored, started and shown is up to the fake that uses it. It runs no guest
// system.
//
// Invariant: no command of a guest reaches the host's programs that end it or change users, however it names them in
// its arguments; their names in the guest's PATH are programs of this package.
package fakeguest
