//go:build !linux

package qemu

import (
	"errors"
	"os"
)

func isBridge(string) bool { return false }

var errNoBridges = errors.New("bridges require Linux")

func openTap(string, string) (*os.File, error) { return nil, errNoBridges }

func vlanLinkKind(int) linkKind { return linkKind{} }

func checkTagging(string, vlanTagger) error { return errNoBridges }

func makeVLAN(string, int, linkKind) error { return errNoBridges }

func removeUnusedVLANs() error { return nil }
