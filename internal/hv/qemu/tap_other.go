//go:build !linux

package qemu

import (
	"errors"
	"os"

	"github.com/vishvananda/netlink"
)

func isBridge(string) bool { return false }

var errNoBridges = errors.New("bridges require Linux")

func openTap(string, string) (*os.File, error) { return nil, errNoBridges }

func newVLANLink(netlink.LinkAttrs, int) netlink.Link { return nil }

func checkTagging(string, vlanTagger) error { return errNoBridges }

func makeVLAN(string, int, vlanTagger) error { return errNoBridges }

func removeUnusedVLANs() error { return nil }
