-- Compare and append (EL-6): what one stream lacks, whole or not at all.
-- KEYS: the stream, its events, the session's log, what waits for the session
-- ARGV: me, tag and stream, fence, newest event expected and its chain, newest event afterwards and
--   its chain, number of the first event here, first event that is kept, lifetime of the stream and
--   of its events, when it ended ('' not yet), whether there is a note, the note, whether the stream
--   begins, its epoch, key and requests, the stream, how many events were waiting, how many of those
--   were appended before, how many events; then the names of the waiting, then chain and payload
--   of each event
local me, where, fence, want = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local top, from, first = tonumber(ARGV[6]), tonumber(ARGV[8]), tonumber(ARGV[9])
local taken, again, n = tonumber(ARGV[20]), tonumber(ARGV[21]), tonumber(ARGV[22])
local names, events = 22, 22 + taken + again

if redis.call('HEXISTS', KEYS[3], 'gone') == 1 then return {'GONE'} end
local m = redis.call('HMGET', KEYS[1], 's', 'c', 'f', 'o', 't', 'r')
local s, c, f = tonumber(m[1]), m[2], tonumber(m[3] or '0')
if f > fence or (f == fence and m[4] and m[4] ~= me) then return {'FENCED'} end
local done = 0
if not s then
  if want ~= 0 or ARGV[15] == '0' then return {'ROLLBACK'} end
  redis.call('DEL', KEYS[2])
elseif s < want then
  return {'ROLLBACK', m[1], c}
elseif s > want then
  -- an append of my own whose answer was lost, or another history
  if s == top and c == ARGV[7] then
    done = n
  else
    done = s - from + 1
    if done < 1 or done > n or ARGV[events + 2 * done - 1] ~= c then return {'DIVERGED'} end
  end
elseif c ~= ARGV[5] then
  return {'DIVERGED'}
end

if taken > 0 and done < n then
  local last = string.match(redis.call('HGET', KEYS[3], 'h') or '', '(%S+)$') or ''
  local mine = ARGV[19] .. ':' .. me .. ':'
  if string.sub(last, 1, #mine) ~= mine then return {'STALE'} end
  for i = 1, taken do
    local name = ARGV[names + i]
    if #redis.call('XRANGE', KEYS[4], name, name) == 0 then return {'STALE'} end
  end
end
for i = 1, taken + again do
  local name = ARGV[names + i]
  local waiting = redis.call('XRANGE', KEYS[4], name, name)[1]
  if waiting then
    local e = {}
    for j = 1, #waiting[2], 2 do e[waiting[2][j]] = waiting[2][j + 1] end
    redis.call('XDEL', KEYS[4], name)
    redis.call('HINCRBY', KEYS[3], 'wb', -(#e.d + 96))
    if e.k == '2' and redis.call('HGET', KEYS[5], e.s) == name then redis.call('HDEL', KEYS[5], e.s) end
  end
end

if done == 0 and from > want + 1 then redis.call('DEL', KEYS[2]) end
for i = done + 1, n do
  local id = string.format('%d-1', from + i - 1)
  redis.call('XADD', KEYS[2], id, 'c', ARGV[events + 2 * i - 1], 'd', ARGV[events + 2 * i])
end
if first > top then
  redis.call('DEL', KEYS[2])
elseif first > tonumber(m[5] or '1') then
  redis.call('XTRIM', KEYS[2], 'MINID', string.format('%d-0', first))
end
redis.call('HSET', KEYS[1], 's', ARGV[6], 'c', ARGV[7], 'f', ARGV[3], 'o', me, 't', ARGV[9])
if ARGV[15] == '1' then
  redis.call('HSET', KEYS[1], 'e', ARGV[16], 'k', ARGV[17], 'q', ARGV[18])
  redis.call('HSET', KEYS[3], 'm:' .. ARGV[19], '1')
  redis.call('PEXPIRE', KEYS[3], 90000000)
end
if ARGV[12] ~= '' then
  redis.call('HSET', KEYS[1], 'x', ARGV[12])
  redis.call('HDEL', KEYS[1], 'n')
end
if ARGV[13] == '1' then
  if ARGV[14] == '' then redis.call('HDEL', KEYS[1], 'n') else redis.call('HSET', KEYS[1], 'n', ARGV[14]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[10])
redis.call('PEXPIRE', KEYS[2], ARGV[11])
if m[6] and m[6] ~= me then redis.call('PUBLISH', 'vestibule:r:' .. m[6], 'A ' .. where .. ' ' .. ARGV[6] .. ' ' .. me) end
return {'OK'}
