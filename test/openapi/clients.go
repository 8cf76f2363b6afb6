package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// The modules that clients are compiled in, and a program of each that uses its client.
//
//go:embed testdata/go testdata/typescript
var modules embed.FS

// files are those of the modules by where they go. Names that the Go tools would take for a part of
// this module have another ending here.
var files = map[string]string{
	"testdata/go/mod":                   "go/go.mod",
	"testdata/go/sum":                   "go/go.sum",
	"testdata/go/use.txt":               "go/use/main.go",
	"testdata/typescript/use.ts":        "typescript/use.ts",
	"testdata/typescript/tsconfig.json": "typescript/tsconfig.json",
}

// prepare writes the modules and the description.
func (w *workplace) prepare() error {
	for _, dir := range []string{"go/use", "go/buildyard", "typescript"} {
		if err := os.MkdirAll(w.path(dir), 0o755); err != nil {
			return err
		}
	}
	for from, to := range files {
		text, err := modules.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(w.path(to), text, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(w.path("openapi.yaml"), api.OpenAPI, 0o600)
}

// goClient is the client that oapi-codegen makes.
const goClient = "go/buildyard/client.gen.go"

// makeGo makes the Go client.
func makeGo(ctx context.Context, w *workplace) (string, error) {
	program, err := w.installed("oapi-codegen")
	if err != nil {
		return "", err
	}
	_, err = rig.Output(ctx, w.dir, program, "-generate", "types,client", "-package", "buildyard",
		"-o", w.path(goClient), w.path("openapi.yaml"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(w.path(goClient))
	if err != nil {
		return "", err
	}
	version, err := rig.Output(ctx, w.dir, program, "-version")
	by := strings.Join(strings.Fields(version), " ")
	return fmt.Sprintf("%d lines by %s", strings.Count(string(text), "\n"), by), err
}

// operationID finds the operations of the description.
var operationID = regexp.MustCompile(`(?m)^      operationId: (\w+)$`)

// checkMethods looks for a method of the Go client for every operation.
func checkMethods(_ context.Context, w *workplace) (string, error) {
	text, err := os.ReadFile(w.path(goClient))
	if err != nil {
		return "", err
	}
	ids := operationID.FindAllSubmatch(api.OpenAPI, -1)
	var missing []string
	for _, id := range ids {
		name := strings.ToUpper(string(id[1][:1])) + string(id[1][1:])
		method := "func (c *Client) " + name
		if !strings.Contains(string(text), method+"(") && !strings.Contains(string(text), method+"WithBody(") {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 || len(ids) == 0 {
		return "", fmt.Errorf("%d of %d are missing: %s", len(missing), len(ids), strings.Join(missing, " "))
	}
	return fmt.Sprintf("%d operations", len(ids)), nil
}

// goUser is the program that uses the Go client.
const goUser = "go/client"

// compileGo compiles the Go client and the program that uses it.
func compileGo(ctx context.Context, w *workplace) (string, error) {
	settings := []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly", "go"}
	if _, err := rig.Output(ctx, w.path("go"), "env", append(settings, "vet", "-trimpath", "./...")...); err != nil {
		return "", err
	}
	build := append(settings, "build", "-trimpath", "-o", w.path(goUser), "./use")
	if _, err := rig.Output(ctx, w.path("go"), "env", build...); err != nil {
		return "", err
	}
	info, err := os.Stat(w.path(goUser))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("go vet has no findings; a program of %d KiB uses it", info.Size()>>10), nil
}

// tsTypes are the types that openapi-typescript makes.
const tsTypes = "typescript/buildyard.ts"

// makeTypeScript makes the TypeScript types.
func makeTypeScript(ctx context.Context, w *workplace) (string, error) {
	program, err := w.installed("typescript", "node_modules", ".bin", "openapi-typescript")
	if err != nil {
		return "", err
	}
	_, err = rig.Output(ctx, w.dir, program, w.path("openapi.yaml"), "-o", w.path(tsTypes),
		"--default-non-nullable=false")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(w.path(tsTypes))
	if err != nil {
		return "", err
	}
	version, err := rig.Output(ctx, w.dir, program, "--version")
	return fmt.Sprintf("%d lines by openapi-typescript %s", strings.Count(string(text), "\n"), version), err
}

// compileTypeScript checks the types, and a module that uses them.
func compileTypeScript(ctx context.Context, w *workplace) (string, error) {
	if _, err := os.Stat(w.path(tsTypes)); err != nil {
		return "", err
	}
	program, err := w.installed("typescript", "node_modules", ".bin", "tsc")
	if err != nil {
		return "", err
	}
	// tsc reports on its standard output.
	if _, err := rig.Output(ctx, w.path("typescript"), "sh", "-c", `"$1" -p . 1>&2`, "sh", program); err != nil {
		return "", err
	}
	version, err := rig.Output(ctx, w.dir, program, "--version")
	return "strict, by tsc " + strings.TrimPrefix(version, "Version "), err
}

// useGo runs the program that uses the Go client against a real cloud with a simulated node.
func useGo(ctx context.Context, w *workplace) (evidence string, err error) {
	if _, err := os.Stat(w.path(goUser)); err != nil {
		return "", err
	}
	programs, err := rig.Build(ctx, w.dir)
	if err != nil {
		return "", err
	}
	cloud, err := rig.NewCloud(ctx, programs, w.path("cloud"))
	if err != nil {
		return "", err
	}
	if err := rig.MakeDir(w.path("cloud")); err != nil {
		return "", err
	}
	if err := cloud.Boot(ctx); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, cloud.End()) }()
	node, err := cloud.Join(ctx, rig.NodeOptions{Name: "node", Capacity: 2, Driver: "sim"})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, node.End()) }()
	vm := []string{"create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1", "--ram", "256M"}
	template, err := cloud.Push(ctx, "tiny", vm...)
	if err != nil {
		return "", err
	}
	return rig.Output(ctx, w.dir, w.path(goUser), cloud.Controller, template)
}
