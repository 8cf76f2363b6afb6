package imagescan_test

import (
	"context"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
)

// lodash is a package of npm with known vulnerabilities.
func lodash(path string) []apfstest.File {
	return []apfstest.File{{Path: path +
		"/node_modules/lodash/package.json", Data: []byte(`{"name": "lodash", "version": "4.17.11"}`)}}
}

// macs are the images for scripts: a Mac, and one with an encrypted volume.
var macs = map[string][]apfstest.Volume{
	"mac": {
		{Name: "Macintosh HD", Role: apfstest.System, Group: [16]byte{1}, Files: lodash("usr/lib")},
		{Name: "Macintosh HD - Data", Role: apfstest.Data, Group: [16]byte{1}, Files: lodash("Users/ci")},
		{Name: "Work/1", Files: lodash("src")},
	},
	"snapshot": {
		{Name: "Data", Role: apfstest.Data, Snapshots: []apfstest.Snapshot{{Name: "before", Files: lodash("old")}}},
		{Name: "System", Role: apfstest.System, Files: []apfstest.File{{
			Path: "System/Library/CoreServices/SystemVersion.plist",
			Data: []byte(`<?xml version="1.0" encoding="UTF-8"?><plist version="1.0"><dict><key>ProductName</key>` +
				`<string>macOS</string><key>ProductVersion</key><string>14.5</string></dict></plist>`),
		}}},
	},
	"encrypted": {
		{Name: "Open", Role: apfstest.Data, Files: lodash("Users/ci")},
		{Name: "Secret", Passwords: []string{"password"}, Files: lodash("safe")},
	},
}

// apfs writes an image of macs: apfs mac FILE.
func apfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || macs[args[0]] == nil {
		ts.Fatalf("usage: apfs mac|encrypted|snapshot FILE")
	}
	f, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	defer f.Close()
	_, err = apfstest.Write(f, apfstest.Container{Volumes: macs[args[0]]})
	ts.Check(err)
}

// template puts images into a registry's storage, as tags of a template: template DIR ID FILE...
func template(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: template DIR ID FILE...")
	}
	var versions []string
	for _, name := range args[2:] {
		versions = append(versions, ts.MkAbs(name))
	}
	ts.Check(os.MkdirAll(ts.MkAbs(args[0]), 0o755))
	ts.Check(disktest.WriteTemplate(context.Background(), ts.MkAbs(args[0]),
		disktest.Template{ID: args[1], Versions: versions, Format: "raw"}))
}
