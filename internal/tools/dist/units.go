package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/buildyard/buildyard/internal/config"
)

// serviceUnit is a unit of the package buildyard, for the template buildyard.service.tmpl.
type serviceUnit struct {
	Name, Description, Manual string
	Command                   string
	Environment               []string
	EnvironmentFile           string
	StateDirectory            string
	Conflicts                 string
}

const (
	controllerEnv = "/etc/buildyard/controller.env"
	registryEnv   = "/etc/buildyard/registry.env"
)

// The directories of the services. A user that is not root has other defaults.
const (
	controllerDir = "SVC_DATA_DIR=/var/lib/buildyard/controller"
	registryDir   = "SVC_REGISTRY_BASE_PATH=/var/lib/buildyard/registry"
)

// serviceUnits are the services of buildyard: both in one process, or each in a separate one.
var serviceUnits = []serviceUnit{
	{
		Name: "buildyard.service", Description: "Buildyard controller and registry", Manual: "buildyard-up",
		Command: "/usr/bin/buildyard up", Environment: []string{controllerDir, registryDir},
		EnvironmentFile: controllerEnv, StateDirectory: "buildyard/controller buildyard/registry",
		Conflicts: "buildyard-controller.service buildyard-registry.service",
	},
	{
		Name: "buildyard-controller.service", Description: "Buildyard controller", Manual: "buildyard-controller",
		Command: "/usr/bin/buildyard controller", Environment: []string{controllerDir},
		EnvironmentFile: controllerEnv, StateDirectory: "buildyard/controller", Conflicts: "buildyard.service",
	},
	{
		Name: "buildyard-registry.service", Description: "Buildyard registry", Manual: "buildyard-registry",
		Command:     "/usr/bin/buildyard registry",
		Environment: []string{config.BasePath + "=/var/lib/buildyard/registry"}, EnvironmentFile: registryEnv,
		StateDirectory: "buildyard/registry", Conflicts: "buildyard.service",
	},
}

// render executes a template of packaging/.
func (r *distribution) render(name string, view any) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(r.root, "packaging", filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	tmpl, err := template.New(name).Option("missingkey=error").Parse(string(raw))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = tmpl.Execute(&text, view)
	return text.Bytes(), err
}

// environmentFiles returns the settings files of the services by path, with every setting as a comment.
func environmentFiles() map[string][]byte {
	head := func(units string) string {
		return strings.Join([]string{
			"Settings of " + units + ".",
			"Remove the # of what you change, and restart the service. Settings that \"buildyard init\" has written to",
			"buildyard.conf of the data directory have precedence over defaults, and this file over them.",
		}, "\n")
	}
	return map[string][]byte{
		controllerEnv: config.EnvironmentFile(config.ControllerTable,
			head("buildyard.service and buildyard-controller.service")),
		registryEnv: config.EnvironmentFile(config.RegistryTable, head("buildyard-registry.service")),
	}
}
