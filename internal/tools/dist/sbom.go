package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// modulePath is the module of the programs, and prefix of the modules of the SDK.
const modulePath = "github.com/buildyard/buildyard"

// writeSBOMs writes a bill of materials in the form of CycloneDX for each platform: its programs and the modules that
// "go version -m" shows for them.
func (r *distribution) writeSBOMs(context.Context) error {
	for _, p := range r.platforms {
		infos := map[string]*debug.BuildInfo{}
		for _, name := range programs {
			info, err := buildinfo.ReadFile(r.program(p, name))
			if err != nil {
				return err
			}
			infos[name] = info
		}
		bom := newSBOM(infos, r.full, r.date)
		// The number must differ from that of another bill, and be the same for the same one.
		bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.full+" "+p.String())).String()
		f, err := os.Create(filepath.Join(r.out, r.archiveName(p)+".cdx.json"))
		if err != nil {
			return err
		}
		err = cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// newSBOM returns the bill of programs with their build information.
func newSBOM(infos map[string]*debug.BuildInfo, version string, date time.Time) *cyclonedx.BOM {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: date.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: "release", Type: cyclonedx.ComponentTypeApplication, Name: "buildyard", Version: version,
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		},
	}
	modules := map[string]cyclonedx.Component{}
	names := slices.Sorted(maps.Keys(infos))
	dependencies := []cyclonedx.Dependency{{Ref: "release", Dependencies: &names}}
	var components []cyclonedx.Component
	for _, name := range names {
		info := infos[name]
		components = append(components, cyclonedx.Component{
			BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		})
		used := []string{}
		for _, c := range moduleComponents(info, version) {
			modules[c.BOMRef] = c
			used = append(used, c.BOMRef)
		}
		slices.Sort(used)
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: name, Dependencies: &used})
	}
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[ref])
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	return bom
}

// moduleComponents returns the modules of a program, and the standard library. Modules of this repository have the
// version of the release.
func moduleComponents(info *debug.BuildInfo, version string) []cyclonedx.Component {
	list := []cyclonedx.Component{goComponent("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if strings.HasPrefix(m.Path, modulePath+"/") {
			list = append(list, goComponent(m.Path, version))
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, goComponent(m.Path, m.Version))
	}
	return list
}

func goComponent(path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url,
	}
}
