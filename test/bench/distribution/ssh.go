package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

// readDisk reads 1 GiB of the system disk without the guest's page cache. dd prints the rate last.
const readDisk = "dd if=/dev/vda of=/dev/null bs=1M count=1024 skip=%d iflag=direct 2>&1"

// diskReads is how often a guest reads its disk, each time for about a third of a second.
const diskReads = 15

var ddSeconds = regexp.MustCompile(`copied, ([0-9.e+-]+) s,`)

// diskRate returns the median of the rates, in bytes a second, with which a guest reads its disk.
func (s *stage) diskRate(ctx context.Context, id string) (float64, error) {
	client, err := s.login(ctx, id)
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	var rates []float64
	for i := range diskReads {
		out, err := output(client, fmt.Sprintf(readDisk, 1024*(i%3+1)))
		if err != nil {
			return 0, err
		}
		found := ddSeconds.FindStringSubmatch(out)
		if found == nil {
			return 0, fmt.Errorf("dd printed %q", out)
		}
		seconds, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return 0, err
		}
		rates = append(rates, 1<<30/seconds)
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

func output(client *ssh.Client, command string) (string, error) {
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	out, err := session.CombinedOutput(command)
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return string(out), nil
}

// login logs in as the guest's root, once its SSH server answers.
func (s *stage) login(ctx context.Context, id string) (client *ssh.Client, err error) {
	raw, err := os.ReadFile(s.key)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("key of the guest: %w", err)
	}
	var inst struct {
		VMInfo struct {
			Rules []struct {
				Name     string `json:"rule_name"`
				HostPort int    `json:"host_port"`
			} `json:"port_forwarding"`
		} `json:"vminfo"`
	}
	if err := s.client.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(id), nil, &inst); err != nil {
		return nil, err
	}
	if len(inst.VMInfo.Rules) == 0 {
		return nil, errors.New("the instance has no port for ssh")
	}
	address := fmt.Sprintf("%s:%d", s.nodes[0].Address, inst.VMInfo.Rules[0].HostPort)
	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, Timeout: time.Minute,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // a guest of this run
	}
	return client, s.await(ctx, startLimit, time.Second, "the guest's SSH server", func() (bool, error) {
		client, err = ssh.Dial("tcp", address, config)
		return err == nil, nil //nolint:nilerr // it is tried again
	})
}
