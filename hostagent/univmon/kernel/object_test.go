// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestObjectIsCurrent(t *testing.T) { testkit.ObjectIsCurrent(t) }
