-- What every script of a session begins with.
-- KEYS: session, open, belongings. ARGV: now, idle limit, age limit (-1: none), net; all in ms.
local now, idle, age = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local function whole(number)
  return string.format('%.0f', number)
end

-- The session as it is at this moment; nil when there is none. The streams of a replica count until
-- its deadline, and until then the session was in use.
local function look()
  local s = redis.call('HMGET', KEYS[1], 'o', 'v', 'st', 'born', 'seen')
  if not s[1] then
    return nil
  end
  local it = {
    opening = s[1], version = s[2], state = s[3],
    born = tonumber(s[4]), seen = tonumber(s[5]), streams = 0, busy = 0, over = nil,
  }
  local open = redis.call('HGETALL', KEYS[2])
  for i = 2, #open, 2 do
    local count, deadline = string.match(open[i], '^(%d+):(%d+):')
    count, deadline = tonumber(count), tonumber(deadline)
    if count > 0 and deadline > now then
      it.streams = it.streams + count
      it.busy = math.max(it.busy, deadline)
    elseif count > 0 then
      it.seen = math.max(it.seen, deadline)
    end
  end
  if age >= 0 and now - it.born >= age then
    it.over = 'age'
  elseif it.streams == 0 and now - it.seen >= idle then
    it.over = 'idle'
  end
  return it
end

local function tell(it)
  return { it.opening, it.version, it.state, whole(it.born), whole(it.seen), it.streams, whole(it.busy) }
end

local function used(it)
  if now > it.seen then
    it.seen = now
  end
  redis.call('HSET', KEYS[1], 'seen', whole(it.seen))
end

-- What nobody uses and nobody sweeps runs out.
local function renew()
  for i = 1, 3 do
    redis.call('PEXPIRE', KEYS[i], ARGV[4])
  end
end
