package main

import (
	"context"
	"os"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// guestVerb is the hidden command of the guest's process, which run starts.
const guestVerb = "fake-guest"

const guestUser = "admin" // as in the vendor's images

// serveGuest is the guest's process.
func serveGuest(ctx context.Context, c *call) error {
	v := c.vm(c.name())
	g := &fakeguest.Guest{
		Dir: v.dir, Name: v.name, Knobs: v.knobs, Address: fakeguest.AddressInGuest(), User: guestUser,
		Load:    func(dir string) error { return loadGuest(v, dir) },
		Store:   func(dir string) error { return storeTree(v, dir) },
		Suspend: func(archive []byte) error { return os.WriteFile(v.path(stateFile), archive, 0o600) },
		Connect: func() error {
			config, err := v.config()
			if err != nil {
				return err
			}
			return v.addLease(config.MACAddress)
		},
	}
	return g.Serve(ctx)
}

// loadGuest reads the guest's files from its suspended state, otherwise from its disk.
func loadGuest(v *vm, dir string) error {
	if err := bootFirmware(v); err != nil {
		return err
	}
	if state, err := os.Open(v.path(stateFile)); err == nil {
		defer state.Close()
		_ = os.Remove(v.path(stateFile))
		return fakeguest.Unpack(state, dir)
	}
	return loadTree(v, dir)
}

// guestEnvironment is the environment of all processes of a guest.
func guestEnvironment(v *vm, address string) []string {
	return append(fakeguest.Environment(v.dir, address, guestUser),
		"TART_HOME="+v.home.dir, "TART_KNOBS="+string(v.knobs))
}
