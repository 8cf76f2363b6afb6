package main

import (
	_ "embed"
	"os"
	"path/filepath"
)

// sdkSource is a program that uses the client package as users of the old commit do. It is
// compiled with the old sources only.
//
//go:embed testdata/sdk.go.txt
var sdkSource []byte

// writeSDKProgram puts that program into the old sources, so that it is built with their programs.
func writeSDKProgram(root string) error {
	dir := filepath.Join(root, "cmd", "upgradesdk")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "main.go"), sdkSource, 0o600)
}
