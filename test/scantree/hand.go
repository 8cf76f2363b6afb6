package scantree

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"howett.net/plist"

	"github.com/rogpeppe/go-internal/txtar"
)

// handMade writes what no package manager of this machine makes: kegs and casks of
// Homebrew, applications, lock files of every kind, Java archives within each other.
func handMade(_ context.Context, dir string) error {
	files := map[string][]byte{}
	for _, line := range words("kegs.txt") {
		name, version, _ := strings.Cut(line, " ")
		keg := "opt/homebrew/Cellar/" + name + "/" + version
		files[keg+"/INSTALL_RECEIPT.json"] = []byte(`{"homebrew_version":"4.3.0","installed_on_request":true}` + "\n")
		files[keg+"/.brew/"+name+".rb"] = fmt.Appendf(nil,
			"class Formula1 < Formula\n  desc \"x\"\n  license \"MIT\"\n  url \"https://example.test/%s\"\nend\n",
			version)
		files[keg+"/bin/"+name] = []byte("#!/bin/sh\n")
	}
	for i, line := range words("apps.txt") {
		f := strings.Split(line, "|")
		data, err := plist.Marshal(map[string]any{
			"CFBundleName": f[1], "CFBundleIdentifier": f[2], "CFBundleShortVersionString": f[3],
			"CFBundleVersion": "1",
		}, []int{plist.XMLFormat, plist.BinaryFormat}[i%2])
		if err != nil {
			return err
		}
		files[f[0]+".app/Contents/Info.plist"] = data
	}
	hand, err := lists.ReadFile("lists/hand.txtar")
	if err != nil {
		return err
	}
	for _, f := range txtar.Parse(hand).Files {
		files[f.Name] = f.Data
	}
	inner := archive(entry{
		"META-INF/maven/org.apache.logging.log4j/log4j-core/pom.properties",
		[]byte("version=2.14.1\ngroupId=org.apache.logging.log4j\nartifactId=log4j-core\n"),
	})
	files["srv/java/app.war"] = archive(entry{"WEB-INF/lib/log4j-core-2.14.1.jar", inner},
		entry{"WEB-INF/lib/junit-4.12.jar", archive(entry{"a.class", nil})})
	boot := archive(entry{"BOOT-INF/lib/log4j-core-2.14.1.jar", inner})
	files["srv/java/app.ear"] = archive(entry{"app.war", archive(entry{"WEB-INF/lib/boot.jar", boot})})
	files["Applications/Slack.app/Contents/Resources/app.asar"] = asar()
	for name, data := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, data, 0o644); err != nil {
			return err
		}
	}
	return os.Symlink("/Applications/Firefox.app",
		filepath.Join(dir, "opt/homebrew/Caskroom/firefox/130.0.1/Firefox.app"))
}

// entry is a file of an archive.
type entry struct {
	name string
	data []byte
}

// archive makes a zip archive.
func archive(files ...entry) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			panic(err) // it is made in memory
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// asar makes an archive of an Electron application with one package.
func asar() []byte {
	const data = `{"name":"electron-store","version":"8.1.0"}`
	index := fmt.Sprintf(
		`{"files":{"node_modules":{"files":{"electron-store":{"files":{"package.json":{"offset":"0","size":%d}}}}}}}`,
		len(data))
	index += strings.Repeat(" ", (4-len(index)%4)%4)
	head := make([]byte, 16)
	for i, n := range []int{4, len(index) + 8, len(index) + 4, len(index)} {
		binary.LittleEndian.PutUint32(head[4*i:], uint32(n))
	}
	return []byte(string(head) + index + data)
}
